//go:build !linux

package segment

import "unsafe"

// A Liveness is not available on this system.
type Liveness struct{}

// NewLiveness returns ErrUnsupported.
func NewLiveness(unsafe.Pointer) (*Liveness, error) { return nil, ErrUnsupported }

// Close does nothing.
func (*Liveness) Close() {}
