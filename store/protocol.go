package store

import (
	"encoding/binary"
	"fmt"
)

// An id is the first byte of a request and names it. The comments below list what
// follows, and then the answer. Numbers are little-endian. A key or a value is encoded
// as its length in eight bytes and its bytes; a list as its length in eight bytes and
// its elements.
type id byte

const (
	idValidate   id = iota // u32 magic; no answer
	idSet                  // key, value; no answer
	idCompareSet           // key, expected, desired; value
	idGet                  // key; value
	idAdd                  // key, i64; i64
	idCheck                // keys; u8
	idWait                 // keys; u8, once all keys exist
	idNumKeys              // nothing; i64
	idDelete               // key; i64
	idAppend               // key, value; no answer
	idMultiGet             // keys; values, without a count
	idMultiSet             // list of key and value; no answer
	idCancelWait           // nothing; u8
	idPing                 // u32; the same u32
	idPush                 // key, value; no answer
	idPop                  // key; i64 length of the queue before, and a value unless it was zero
	idQueueLen             // key; i64
	idList                 // nothing; i64 count, and keys
	idBarrier              // key, i64 n; u8, once n callers have arrived
	idCount
)

var idNames = [idCount]string{
	"VALIDATE", "SET", "COMPARE_SET", "GET", "ADD", "CHECK", "WAIT", "GETNUMKEYS", "DELETE_KEY", "APPEND", "MULTI_GET",
	"MULTI_SET", "CANCEL_WAIT", "PING", "QUEUE_PUSH", "QUEUE_POP", "QUEUE_LEN", "LIST_KEYS", "BARRIER",
}

// String returns PyTorch's name of the request.
func (i id) String() string {
	if i < idCount {
		return idNames[i]
	}
	return fmt.Sprintf("request %d", byte(i))
}

// magic follows the first VALIDATE on every connection.
const magic = 0x3C85F7CE

// The one-byte answers.
const (
	answerReady    = 0 // CHECK: all keys exist
	answerNotReady = 1 // CHECK: a key is missing
	answerStop     = 0 // WAIT, BARRIER: the wait is complete
	answerCanceled = 1 // CANCEL_WAIT: the wait is cancelled
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

// hello returns the first bytes that a client of the plain protocol sends.
func hello(nonce uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{byte(idValidate)}, magic)
	return binary.LittleEndian.AppendUint32(append(b, byte(idPing)), nonce)
}
