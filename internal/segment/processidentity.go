package segment

import (
	"crypto/rand"
	"os"
	"unsafe"
)

const nonceBytes = 16

// A Sign is by what other processes know this one: its number, which means another
// process in another container, and after its end; and something random, and where
// in its memory that is.
type ProcessIdentity struct {
	PID   int    `json:"pid"`
	Addr  uint64 `json:"addr"`
	Nonce []byte `json:"mark"`

	liveness *robustList // nil: none is known; see Trust
}

// NewSign makes a sign of this process, which others find as long as it is kept.
func NewProcessIdentity() *ProcessIdentity {
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // never fails
	return &ProcessIdentity{PID: os.Getpid(), Addr: uint64(uintptr(unsafe.Pointer(&nonce[0]))), Nonce: nonce}
}
