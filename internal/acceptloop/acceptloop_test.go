package acceptloop

import (
	"net"
	"slices"
	"syscall"
	"testing"
)

// script is a listener whose Accept returns the given errors in order; nil is a connection.
type script struct {
	net.Listener
	answers []error
}

func (s *script) Accept() (net.Conn, error) {
	if len(s.answers) == 0 {
		return nil, &net.OpError{Op: "accept", Err: net.ErrClosed}
	}
	err := s.answers[0]
	s.answers = s.answers[1:]
	return nil, err
}

// TestRun checks that trouble is called once per sequence of errors, and that only the end of the
// listener ends the loop.
func TestRun(t *testing.T) {
	full := &net.OpError{Op: "accept", Err: syscall.EMFILE}
	var seen []string
	Run(&script{answers: []error{nil, full, full, full, nil, nil, full}},
		func(err error) { seen = append(seen, err.Error()) },
		func(net.Conn) { seen = append(seen, "taken") })
	want := []string{"taken", full.Error(), "taken", "taken", full.Error()}
	if !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}
