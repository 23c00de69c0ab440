//go:build !amd64

package prefetch

import "unsafe"

// Write does nothing on this architecture.
func Write(unsafe.Pointer, int) {}

// Read does nothing on this architecture.
func Read(unsafe.Pointer, int) {}
