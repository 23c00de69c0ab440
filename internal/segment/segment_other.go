//go:build !linux

package segment

// New returns ErrUnsupported.
func New(string, int) (*Segment, error) { return nil, ErrUnsupported }

// Map returns ErrUnsupported.
func Map(int) (*Segment, error) { return nil, ErrUnsupported }

// FD is -1.
func (s *Segment) FD() int { return -1 }

// CloseFD does nothing.
func (s *Segment) CloseFD() error { return nil }

// Close does nothing.
func (s *Segment) Close() error { return nil }
