//go:build !linux

package segment

import "unsafe"

// A Life cannot be had on this system.
type Liveness struct{}

// Live returns ErrUnsupported.
func NewLiveness(unsafe.Pointer) (*Liveness, error) { return nil, ErrUnsupported }

// Close does nothing.
func (*Liveness) Close() {}
