package main

import (
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// An operationFlag is a word in a file that outlives its process. It counts the
// operations that the process was in. The nil value does nothing.
type operationFlag struct{ word *atomic.Uint32 }

// openFlag maps the file at path, and makes or empties it. The mapping stays until the
// process exits.
func openFlag(path string) (*operationFlag, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		return nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &operationFlag{(*atomic.Uint32)(unsafe.Pointer(&mem[0]))}, nil
}

func (n *operationFlag) enter() {
	if n != nil {
		n.word.Add(1)
	}
}

func (n *operationFlag) leave() {
	if n != nil {
		n.word.Add(^uint32(0))
	}
}

// inOperation reads the flag of a process that is dead.
func inOperation(path string) (bool, error) {
	text, err := os.ReadFile(path)
	return len(text) > 0 && text[0] > 0, err
}
