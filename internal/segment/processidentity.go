package segment

import (
	"crypto/rand"
	"os"
	"unsafe"
)

const nonceBytes = 16

// A ProcessIdentity identifies a process for ReadProcess. The PID alone does not: another container
// uses it for another process, and the system reuses it after the process exits. The identity
// therefore contains a random nonce and its address in the process's memory.
type ProcessIdentity struct {
	PID   int    `json:"pid"`
	Addr  uint64 `json:"addr"`
	Nonce []byte `json:"mark"`

	liveness *robustList // nil: not available; see UseLiveness
}

// NewProcessIdentity returns an identity of this process. It is valid while it is reachable.
func NewProcessIdentity() *ProcessIdentity {
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // never fails
	return &ProcessIdentity{PID: os.Getpid(), Addr: uint64(uintptr(unsafe.Pointer(&nonce[0]))), Nonce: nonce}
}
