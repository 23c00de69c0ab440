//go:build !linux

package segment

// A Life cannot be had on this system.
type Life struct{}

type lifeLine struct{}

// Live returns ErrUnsupported.
func Live(*Segment) (*Life, error) { return nil, ErrUnsupported }

// Close does nothing.
func (*Life) Close() {}

// Trust returns ErrUnsupported.
func (*Sign) Trust(*Segment) error { return ErrUnsupported }
