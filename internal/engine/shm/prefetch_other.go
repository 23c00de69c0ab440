//go:build !amd64

package shm

import "unsafe"

// prefetchWrite does nothing on this architecture.
func prefetchWrite(unsafe.Pointer, int) {}

// prefetchRead does nothing on this architecture.
func prefetchRead(unsafe.Pointer, int) {}
