//go:build !linux

package segment

import "unsafe"

// New returns ErrUnsupported.
func New(string, int) (*Segment, error) { return nil, ErrUnsupported }

// Private makes memory that is passed to nobody.
func Private(bytes int) (*Segment, error) {
	const page = 4096
	mem := make([]byte, bytes+page)
	skip := -int(uintptr(unsafe.Pointer(&mem[0]))) & (page - 1)
	return &Segment{mem: mem[skip : skip+max(bytes, 1)], fd: -1}, nil
}

// Map returns ErrUnsupported.
func Map(int) (*Segment, error) { return nil, ErrUnsupported }

// FD is -1.
func (s *Segment) FD() int { return -1 }

// CloseFD does nothing.
func (s *Segment) CloseFD() error { return nil }

// Close does nothing.
func (s *Segment) Close() error { return nil }
