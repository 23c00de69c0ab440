//go:build !linux

package segment

import "context"

// A Listener is not available on this system.
type Listener struct{}

// Listen returns ErrUnsupported.
func Listen() (*Listener, error) { return nil, ErrUnsupported }

// Addr returns nil.
func (*Listener) Addr() []byte { return nil }

// Serve does nothing.
func (*Listener) Serve([]byte) {}

// Pass returns ErrUnsupported.
func (*Listener) Pass(context.Context, string, *Segment, []int) error { return ErrUnsupported }

// Close does nothing.
func (*Listener) Close() error { return nil }

// Fetch returns ErrUnsupported.
func Fetch(context.Context, []byte, []byte, string, int) (int, error) { return -1, ErrUnsupported }

// HostHint returns an empty string.
func HostHint() string { return "" }

// Probe returns ErrUnsupported.
func Probe() error { return ErrUnsupported }
