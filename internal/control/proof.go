package control

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

const nonceBytes = 32

func newNonce() []byte {
	n := make([]byte, nonceBytes)
	rand.Read(n) // never fails
	return n
}

// prove returns an HMAC that proves knowledge of the secret. It covers the sender's side, both
// nonces, the claimed rank and size, and the binding of the TLS session, which is nil without TLS.
func prove(secret []byte, side string, theirs, ours []byte, rank, size int, binding []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("tutti control 1 " + side))
	h.Write(theirs)
	h.Write(ours)
	var claim [16]byte
	binary.BigEndian.PutUint64(claim[:], uint64(rank))
	binary.BigEndian.PutUint64(claim[8:], uint64(size))
	h.Write(claim[:])
	h.Write(binding)
	return h.Sum(nil)
}

func proved(secret []byte, side string, theirs, ours []byte, rank, size int, binding, proof []byte) bool {
	return hmac.Equal(prove(secret, side, theirs, ours, rank, size, binding), proof)
}
