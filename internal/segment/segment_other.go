//go:build !linux

package segment

import "unsafe"

// New returns ErrUnsupported.
func New(string, int, int, int) (*Segment, error) { return nil, ErrUnsupported }

// Map returns ErrUnsupported.
func Map(int, int, int, int) (*Segment, error) { return nil, ErrUnsupported }

// Private makes memory that cannot be passed to other processes.
func Private(bytes int) (*Segment, error) {
	const page = 4096
	part, err := partBytes(1, bytes, page)
	if err != nil {
		return nil, err
	}
	mem := make([]byte, part+page)
	skip := -int(uintptr(unsafe.Pointer(&mem[0]))) & (page - 1)
	return &Segment{mem: mem[skip : skip+part], part: part, fd: -1}, nil
}

// FD returns -1.
func (s *Segment) FD() int { return -1 }

// CloseFD does nothing.
func (s *Segment) CloseFD() error { return nil }

// Close does nothing.
func (s *Segment) Close() error { return nil }
