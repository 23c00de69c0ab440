package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/overlay"
)

// TestEnterTooLate has a rank prove itself when rank 0 has just given up: it is
// refused, and does not wait for a welcome.
func TestAddRankTooLate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := newMember(Config{Size: 3, Listener: l, Logger: slog.New(slog.DiscardHandler)})
	if err := m.serveJoin(ctx); err == nil || !strings.Contains(err.Error(), "ranks 1 and 2 missing") {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	defer there.Close()
	defer here.Close()
	if wrong := m.server.addRank(newConn(here), &frame{Kind: hello, Rank: 1}, nil); !strings.Contains(wrong.reason, "stopped waiting") {
		t.Errorf("it was let in: %q", wrong.reason)
	}
}

// halfway is a connection that takes a part of what is written.
type partialConn struct {
	net.Conn
	why error // it takes no more
}

func (h partialConn) Write(b []byte) (int, error) {
	n, err := h.Conn.Write(b[:len(b)/2])
	return n, errors.Join(err, h.why)
}

// TestHalfSent ends a connection on which a frame was sent in part: its other side
// would take the next one for the rest, or wait for it.
func TestPartialWrite(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	heard := make(chan error, 1)
	go func() {
		_, err := newConn(there).receive(maxFrame)
		heard <- err
	}()
	c := newConn(partialConn{here, syscall.ETIMEDOUT})
	if err := c.send(&frame{Kind: heartbeat}); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("it was sent: %v", err)
	}
	if _, err := c.receive(maxFrame); err == nil || lossReason(err) != overlay.Silent {
		t.Errorf("its own reader ends with %v", err)
	}
	if err := <-heard; !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		t.Errorf("it was heard: %v", err)
	}
}

// deserted is a connection whose other side has left: what it has said is there,
// until this side closes it.
type abandonedConn struct {
	net.Conn // nil: what is not below is not called
	said     io.Reader
	answers  int
	closed   bool
}

func (d *abandonedConn) Read(b []byte) (int, error) {
	if d.closed {
		return 0, net.ErrClosed
	}
	return d.said.Read(b)
}

func (d *abandonedConn) Write([]byte) (int, error) {
	d.answers++
	return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
}

func (d *abandonedConn) Close() error {
	d.closed = true
	return nil
}

func (d *abandonedConn) SetWriteDeadline(time.Time) error { return nil }

// TestHeardAfterAll has rank 0 ask a rank, tell it of a loss and exit, while that
// rank is stopped. When it goes on, it answers in vain, and learns of the loss all
// the same.
func TestReadAfterFailedWrite(t *testing.T) {
	var said []byte
	for _, f := range []*overlay.Message{{Kind: overlay.Ask, Number: 1}, {Kind: overlay.Lost, Rank: 2, Reason: "gone"}, {Kind: overlay.Bye}} {
		said = append(said, wireForm(t, &frame{Kind: control, Message: f})...)
	}
	d := &abandonedConn{said: iotest.OneByteReader(bytes.NewReader(said))}
	m := newMember(Config{Rank: 1, Size: 3})
	l := m.startNode([]*conn{newConn(d)})[0]
	f, err := l.receive(maxFrame)
	m.readLink(0, l, f, err)
	if lost, left := m.Lost(), m.Left(); !slices.Equal(lost, []int{2}) || !slices.Equal(left, []int{0}) || d.answers != 2 {
		t.Errorf("after %d answers it knows that %v are lost, and %v have left", d.answers, lost, left)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestByeUnheard leaves a job whose rank 0 cannot be told any more: that is no error.
func TestCloseWithoutRankZero(t *testing.T) {
	members, _ := joinAll(t, 2)
	m := members[1]
	m.rootConn.mu.Lock() // nobody else sends
	m.rootConn.Conn = partialConn{m.rootConn.Conn, os.ErrDeadlineExceeded}
	m.rootConn.mu.Unlock()
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	leave(t, members[:1])
}

// TestKindsTravel tells a failure of each kind that a group can end by.
func TestFailureKinds(t *testing.T) {
	for _, kind := range []error{
		engine.ErrRankLost, engine.ErrTimeout, engine.ErrMismatch, engine.ErrAborted, engine.ErrClosed, engine.ErrUnsupported,
		engine.ErrCorrupt, engine.ErrNoDevicePath,
	} {
		if f := overlay.NewCause("g", &engine.Failure{Kind: kind}).Failure(); f.Kind != kind {
			t.Errorf("%v arrives as %v", kind, f.Kind)
		}
	}
}
