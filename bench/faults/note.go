package main

import (
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// A note is a word in a file that outlives its process: whether that was in an
// operation. Its nil value notes nothing.
type note struct{ word *atomic.Uint32 }

// openNote maps a file.
func openNote(path string) (*note, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
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
	return &note{(*atomic.Uint32)(unsafe.Pointer(&mem[0]))}, nil
}

func (n *note) enter() {
	if n != nil {
		n.word.Store(1)
	}
}

func (n *note) leave() {
	if n != nil {
		n.word.Store(0)
	}
}

// inOperation reads the note of a process that is dead.
func inOperation(path string) (bool, error) {
	text, err := os.ReadFile(path)
	return len(text) > 0 && text[0] == 1, err
}
