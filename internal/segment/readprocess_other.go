//go:build !linux

package segment

import (
	"errors"
	"unsafe"
)

// Peek is not possible on this system.
func ReadProcess(*ProcessIdentity, unsafe.Pointer, uint64, int) error { return errors.ErrUnsupported }
