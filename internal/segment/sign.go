package segment

import (
	"crypto/rand"
	"os"
	"unsafe"
)

const markBytes = 16

// A Sign is by what other processes know this one: its number, which means another
// process in another container, and after its end; and something random, and where
// in its memory that is.
type Sign struct {
	PID  int    `json:"pid"`
	Addr uint64 `json:"addr"`
	Mark []byte `json:"mark"`

	life *lifeLine // nil: none is known; see Trust
}

// NewSign makes a sign of this process, which others find as long as it is kept.
func NewSign() *Sign {
	mark := make([]byte, markBytes)
	_, _ = rand.Read(mark) // never fails
	return &Sign{PID: os.Getpid(), Addr: uint64(uintptr(unsafe.Pointer(&mark[0]))), Mark: mark}
}
