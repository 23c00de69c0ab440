//go:build !linux

package segment

import "context"

// A Door cannot be opened on this system.
type Door struct{}

// An Invitation is never given.
type Invitation struct {
	Name  string
	Token []byte
}

// A Link never comes about.
type Link struct{}

// OpenDoor returns ErrUnsupported.
func OpenDoor() (*Door, error) { return nil, ErrUnsupported }

// Invitation is the zero value.
func (*Door) Invitation() Invitation { return Invitation{} }

// Close does nothing.
func (*Door) Close() error { return nil }

// Meet meets nobody.
func (*Door) Meet(context.Context, int, map[int]Invitation, News) (map[int]*Link, map[int]error) {
	return nil, nil
}

// Pass returns ErrUnsupported.
func (*Link) Pass(string, string, *Segment) error { return ErrUnsupported }

// Note returns ErrUnsupported.
func (*Link) Note([]byte) error { return ErrUnsupported }

// Take returns ErrUnsupported.
func (*Link) Take(context.Context, string, string) (*Segment, error) { return nil, ErrUnsupported }

// Open does nothing.
func (*Link) Open(string) {}

// Drop does nothing.
func (*Link) Drop(string) {}

// Close does nothing.
func (*Link) Close() error { return nil }

// HostHint is empty.
func HostHint() string { return "" }
