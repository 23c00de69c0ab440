package store

import (
	"encoding/binary"
	"fmt"
)

// An id is a request's first byte. Numbers are little-endian; a key or a value
// is its length, eight bytes, and itself; a list is its length, eight bytes,
// and its members.
type id byte

const (
	idValidate   id = iota // u32 magic; no answer
	idSet                  // key, value; no answer
	idCompareSet           // key, expected, desired; value
	idGet                  // key; value
	idAdd                  // key, i64; i64
	idCheck                // keys; u8
	idWait                 // keys; u8, when all are there
	idNumKeys              // nothing; i64
	idDelete               // key; i64
	idAppend               // key, value; no answer
	idMultiGet             // keys; values, without their number
	idMultiSet             // list of key and value; no answer
	idCancelWait           // nothing; u8
	idPing                 // u32; the same u32
	idPush                 // key, value; no answer
	idPop                  // key; i64 how many there were, and a value if there was one
	idQueueLen             // key; i64
	idList                 // nothing; i64 how many, and keys
	idBarrier              // key, i64; u8, when so many have come
	idCount
)

var idNames = [idCount]string{
	"VALIDATE", "SET", "COMPARE_SET", "GET", "ADD", "CHECK", "WAIT", "GETNUMKEYS", "DELETE_KEY", "APPEND", "MULTI_GET",
	"MULTI_SET", "CANCEL_WAIT", "PING", "QUEUE_PUSH", "QUEUE_POP", "QUEUE_LEN", "LIST_KEYS", "BARRIER",
}

// String is the name that PyTorch gives the request.
func (i id) String() string {
	if i < idCount {
		return idNames[i]
	}
	return fmt.Sprintf("request %d", byte(i))
}

// magic is what every connection of the protocol begins with, after idValidate.
const magic = 0x3C85F7CE

// The one-byte answers.
const (
	answerReady    = 0 // CHECK: all are there
	answerNotReady = 1 // CHECK: not all are there
	answerStop     = 0 // WAIT, BARRIER: wait no longer
	answerCanceled = 1 // CANCEL_WAIT
)

func appendNumber[N int64 | uint64](b []byte, n N) []byte {
	return binary.LittleEndian.AppendUint64(b, uint64(n))
}

func appendBytes[B string | []byte](b []byte, v B) []byte {
	return append(appendNumber(b, uint64(len(v))), v...)
}

func appendKeys(b []byte, keys []string) []byte {
	b = appendNumber(b, uint64(len(keys)))
	for _, k := range keys {
		b = appendBytes(b, k)
	}
	return b
}

// hello is what a client of the plain protocol begins with.
func hello(nonce uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{byte(idValidate)}, magic)
	return binary.LittleEndian.AppendUint32(append(b, byte(idPing)), nonce)
}
