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

// TestAddRankTooLate lets a rank authenticate itself when rank 0 has just stopped waiting. The rank
// is refused and does not wait for a welcome.
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

// partialConn is a connection that accepts only a part of what is written.
type partialConn struct {
	net.Conn
	why error // returned by Write after that part
}

func (h partialConn) Write(b []byte) (int, error) {
	n, err := h.Conn.Write(b[:len(b)/2])
	return n, errors.Join(err, h.why)
}

// TestPartialWrite checks that a connection is closed after a frame was sent in part. The peer
// would otherwise take the next frame for the rest, or wait for it.
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

// abandonedConn is a connection whose peer has closed it. Data that the peer sent can be read until
// this side closes.
type abandonedConn struct {
	net.Conn // nil: methods that are not defined below are not called
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

// TestReadAfterFailedWrite lets rank 0 ask a stopped rank, notify it of a loss and exit. When the
// rank continues, its answer cannot be sent, but it must still read the loss.
func TestReadAfterFailedWrite(t *testing.T) {
	var said []byte
	for _, f := range []*overlay.Message{{Kind: overlay.Ask, Number: 1}, {Kind: overlay.Lost, Ranks: []int{2}, Reason: "gone"}, {Kind: overlay.Bye}} {
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

// TestCloseWithoutRankZero closes a Member whose goodbye cannot be sent to rank 0. Close returns no
// error.
func TestCloseWithoutRankZero(t *testing.T) {
	members, _ := joinAll(t, 2)
	m := members[1]
	m.rootConn.mu.Lock() // prevents other goroutines from sending
	m.rootConn.Conn = partialConn{m.rootConn.Conn, os.ErrDeadlineExceeded}
	m.rootConn.mu.Unlock()
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	leave(t, members[:1])
}

// TestFailureKinds sends a failure of each kind.
func TestFailureKinds(t *testing.T) {
	for _, kind := range []error{
		engine.ErrRankLost, engine.ErrTimeout, engine.ErrMismatch, engine.ErrAborted, engine.ErrClosed, engine.ErrUnsupported,
		engine.ErrCorrupt, engine.ErrNoDevicePath, engine.ErrRevoked,
	} {
		if f := overlay.NewCause("g", &engine.Failure{Kind: kind}).Failure(); f.Kind != kind {
			t.Errorf("%v arrives as %v", kind, f.Kind)
		}
	}
}
