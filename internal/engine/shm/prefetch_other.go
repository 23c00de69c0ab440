//go:build !amd64

package shm

import "unsafe"

// claim does nothing.
func prefetchWrite(unsafe.Pointer, int) {}

// want does nothing.
func prefetchRead(unsafe.Pointer, int) {}
