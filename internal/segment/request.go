package segment

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// The connecting process sends a request: the digest of the segment's name, its rank, and a proof.
// The answer is a status and a proof. By the proofs both sides show that they know the key.

// proofBytes is the size of a digest and of a proof.
const proofBytes = sha256.Size

// requestBytes is the size of a request.
const requestBytes = 2*proofBytes + 4

// answerBytes is the size of an answer.
const answerBytes = 1 + proofBytes

// The status of an answer.
const (
	passed   = 1 // the message carries the descriptor
	refused  = 2 // the segment is not for this rank
	withheld = 3 // the system does not let the descriptor be sent
)

// The purposes of a proof.
const (
	requesting = "request"
	answering  = "answer"
)

// prove returns the proof that one side of a connection to the listener at addr sends, for the
// given purpose. It covers the rank and the digest of the segment's name.
func prove(key []byte, use, addr string, name []byte, rank int) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(use + "\x00" + addr + "\x00"))
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(rank)))
	h.Write(name)
	return h.Sum(nil)
}

func digest(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return sum[:]
}

// request encodes the message by which a rank requests a segment from the listener at addr.
func request(key []byte, addr, name string, rank int) []byte {
	id := digest(name)
	message := binary.BigEndian.AppendUint32(id, uint32(rank))
	return append(message, prove(key, requesting, addr, id, rank)...)
}

// parseRequest decodes a request. It reports false if the sender does not know the key.
func parseRequest(key []byte, addr string, message []byte) (name string, rank int, ok bool) {
	if len(message) != requestBytes {
		return "", 0, false
	}
	id, number, proof := message[:proofBytes], message[proofBytes:proofBytes+4], message[proofBytes+4:]
	rank = int(binary.BigEndian.Uint32(number))
	return string(id), rank, hmac.Equal(proof, prove(key, requesting, addr, id, rank))
}
