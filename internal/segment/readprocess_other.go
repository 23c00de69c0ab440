//go:build !linux

package segment

import (
	"errors"
	"unsafe"
)

// ReadProcess returns errors.ErrUnsupported.
func ReadProcess(*ProcessIdentity, unsafe.Pointer, uint64, int) error { return errors.ErrUnsupported }
