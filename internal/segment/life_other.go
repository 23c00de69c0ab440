//go:build !linux

package segment

import "unsafe"

// A Life cannot be had on this system.
type Life struct{}

// Live returns ErrUnsupported.
func Live(unsafe.Pointer) (*Life, error) { return nil, ErrUnsupported }

// Close does nothing.
func (*Life) Close() {}
