package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// logRecorder records log entries of level warning or higher.
type logRecorder struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (b *logRecorder) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (b *logRecorder) WithAttrs([]slog.Attr) slog.Handler           { return b }
func (b *logRecorder) WithGroup(string) slog.Handler                { return b }

func (b *logRecorder) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
	return nil
}

func (b *logRecorder) get() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.lines...)
}

// await waits until there are n lines.
func (b *logRecorder) await(tb testing.TB, n int) []string {
	tb.Helper()
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if lines := b.get(); len(lines) >= n {
			return lines
		}
	}
	tb.Fatalf("%d lines in the log, not %d: %q", len(b.get()), n, b.get())
	return nil
}

// dialListener opens a connection to a listener.
func dialListener(tb testing.TB, l *Listener) net.Conn {
	tb.Helper()
	c, err := net.Dial("tcp", l.socket.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	return c
}

// closedBy reads until the other side closes.
func closedBy(tb testing.TB, c net.Conn) {
	tb.Helper()
	if _, err := io.Copy(io.Discard, c); err != nil && errors.Is(err, context.DeadlineExceeded) {
		tb.Error("the connection was not closed: ", err)
	}
}

// dialAsRank dials a listener as a rank of a group that knows the secret, and returns the
// listener's answer.
func dialAsRank(tb testing.TB, l *Listener, h hello, secret []byte) (net.Conn, error) {
	tb.Helper()
	c := dialListener(tb, l)
	proof, err := clientHandshake(c, &h, secret, nil)
	if err != nil {
		return c, err
	}
	if _, err := c.Write(proof); err != nil {
		return c, err
	}
	var b [welcomeBytes]byte
	return c, readAnswer(c, b[:], 8)
}

// TestRefused opens connections that are refused, each for another reason, at a listener of a running group.
// Each has one line in the log, and the group continues.
func TestRefused(t *testing.T) {
	book := &logRecorder{}
	opts := testOptions()
	opts.Logger = slog.New(book)
	world := newWorld(t, 3, opts)
	run := func(m *Mesh, w *wait.Waiter) error { return ring(m, w, []int{4, 100_000}) }
	world.run(t, run)
	l := world.listeners[2]
	good := func() hello {
		return hello{lane: laneFrames, from: 1, to: 2, size: 3, job: l.job, group: world.meshes[2].key.group, listener: l.id}
	}
	raw := func(change func(b []byte) []byte) func(t *testing.T) {
		return func(t *testing.T) {
			h := good()
			b := h.encode()
			c := dialListener(t, l)
			if _, err := c.Write(change(b[:])); err != nil {
				t.Fatal(err)
			}
			_ = c.(*net.TCPConn).CloseWrite()
			closedBy(t, c)
		}
	}
	posed := func(secret []byte, want error, change func(h *hello)) func(t *testing.T) {
		return func(t *testing.T) {
			h := good()
			change(&h)
			c, err := dialAsRank(t, l, h, secret)
			if !errors.Is(err, want) {
				t.Errorf("got %v, not %v", err, want)
			}
			_ = c.Close()
		}
	}
	cases := []struct {
		name, reason string
		try          func(t *testing.T)
	}{
		{"garbage", "does not use", raw(func([]byte) []byte { return bytes.Repeat([]byte("x"), 5000) })},
		{"http", "before it sent its hello", raw(func([]byte) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") })},
		{"truncated", "before it sent its hello", raw(func(b []byte) []byte { return b[:helloBytes-1] })},
		{"version", "version", raw(func(b []byte) []byte { b[8]++; return b })},
		{"lane", "lane", raw(func(b []byte) []byte { b[10] = laneControl + 1; return b })},
		{"rank", "rank", raw(func(b []byte) []byte { b[12] = 200; return b })},
		{"huge group", "rank", raw(func(b []byte) []byte { binary.LittleEndian.PutUint32(b[20:], 1<<31); return b })},
		{"to itself", "rank", raw(func(b []byte) []byte { b[12] = 2; return b })},
		{"wrong proof", "secret", raw(func(b []byte) []byte { return append(b, make([]byte, proofBytes)...) })},
		{"wrong secret", "secret", posed([]byte("another"), errSecret, func(*hello) {})},
		{"job", "another job", posed(testSecret, statusJob, func(h *hello) { h.job[0]++ })},
		{"listener", "another process", posed(testSecret, statusListener, func(h *hello) { h.listener[0]++ })},
		{"size", "number of ranks", posed(testSecret, statusSize, func(h *hello) { h.size++ })},
		{"connected", "already", posed(testSecret, statusConnected, func(*hello) {})},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := len(book.get())
			c.try(t)
			lines := book.await(t, before+1)
			if len(lines) != before+1 || !strings.Contains(lines[before], c.reason) {
				t.Errorf("log: %q", lines[before:])
			}
		})
	}
	world.run(t, run)
	if lines := book.get(); len(lines) != len(cases) {
		t.Errorf("%d lines in the log for %d refusals", len(lines), len(cases))
	}
}

// TestSlowHello sends a valid hello one byte at a time. The listener closes the connection after
// HandshakeTimeout and logs one line.
func TestSlowHello(t *testing.T) {
	book := &logRecorder{}
	opts := testOptions()
	opts.Logger = slog.New(book)
	opts.HandshakeTimeout = 50 * time.Millisecond
	world := newWorld(t, 2, opts)
	l := world.listeners[0]
	h := hello{from: 1, to: 0, size: 2, job: l.job, listener: l.id, group: world.meshes[0].key.group}
	b := h.encode()
	c := dialListener(t, l)
	for i := range b {
		if _, err := c.Write(b[i : i+1]); err != nil {
			break
		}
		if len(book.get()) > 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	closedBy(t, c)
	if lines := book.await(t, 1); len(lines) != 1 {
		t.Errorf("log: %q", lines)
	}
}

// TestManyPending opens a thousand idle connections to every listener, from a goroutine, while a job runs and
// new groups connect. No more than MaxPending are kept; each of the others has a line in the log.
func TestManyPending(t *testing.T) {
	book := &logRecorder{}
	opts := testOptions()
	opts.Logger = slog.New(book)
	opts.MaxPending = 128               // a rank must be evicted less often than it retries
	opts.HandshakeTimeout = testTimeout // no connection is closed by a timeout
	world := newWorld(t, 2, opts)
	const crowd = 1000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range crowd {
			c := dialListener(t, world.listeners[i%2])
			if i%3 == 0 {
				_, _ = c.Write([]byte("tuttitcp"))
			}
		}
	})
	world.run(t, func(m *Mesh, w *wait.Waiter) error { return ring(m, w, someSizes) })
	wg.Wait()
	for _, l := range world.listeners {
		l.mu.Lock()
		if n := l.pending.Len(); n > opts.MaxPending {
			t.Errorf("%d connections are pending", n)
		}
		l.mu.Unlock()
	}
	// Every evicted connection has a line in the log.
	lines := book.await(t, crowd-2*opts.MaxPending)
	for _, line := range lines {
		if !strings.Contains(line, "too many") {
			t.Error(line)
		}
	}
	group := newGroup()
	peers := [][]string{world.listeners[0].Addrs(), world.listeners[1].Addrs()}
	second := &extraGroup{t: t}
	for r, l := range world.listeners {
		second.add(l.Mesh(MeshOptions{Group: group, Rank: r, Peers: peers}))
	}
	second.run(t, func(m *Mesh, w *wait.Waiter) error { return ring(m, w, []int{1, 2, 3}) })
}

// extraGroup is a further group on existing listeners.
type extraGroup struct {
	world
	t *testing.T
}

func (w *extraGroup) add(m *Mesh, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.meshes = append(w.meshes, m)
	w.t.Cleanup(func() { _ = m.Close() })
}

// TestBadHeaders connects as a rank and sends invalid headers. The receiver returns a LostError without
// ErrClosed.
func TestBadHeaders(t *testing.T) {
	for name, change := range map[string]func(b []byte){
		"magic":    func(b []byte) { b[0]++ },
		"kind":     func(b []byte) { b[4] = 77 },
		"wide":     func(b []byte) { b[6] = 1 },
		"length":   func(b []byte) { binary.LittleEndian.PutUint64(b[8:], maxBody+1) },
		"negative": func(b []byte) { binary.LittleEndian.PutUint64(b[8:], 1<<63) },
		"number":   func(b []byte) { b[16]++ },
		"lane":     func(b []byte) { b[4] = kindReady },
	} {
		t.Run(name, func(t *testing.T) {
			world := newWorld(t, 2, testOptions())
			l := world.listeners[1]
			c, err := dialAsRank(t, l, hello{
				lane: laneFrames, from: 0, to: 1, size: 2, job: l.job, group: world.meshes[1].key.group,
			}, testSecret)
			if err != nil {
				t.Fatal(err)
			}
			var b [headerBytes + 4]byte
			h := header{kind: kindFrame, length: 4, id: 1}
			h.put(b[:])
			change(b[:])
			if _, err := c.Write(b[:]); err != nil {
				t.Fatal(err)
			}
			err = world.meshes[1].Exchange(newWaiter(), nil, &transport.Frame{Peer: 0, Body: make([]byte, 4)})
			var lost *transport.LostError
			if !errors.As(err, &lost) || lost.Peer != 0 || errors.Is(err, transport.ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestBadMessages sends invalid headers on the message lane. A receive from that rank returns a LostError
// without ErrClosed.
func TestBadMessages(t *testing.T) {
	for name, h := range map[string]header{
		"a frame":          {kind: kindFrame, id: 1},
		"data unasked for": {kind: kindData, id: 1, length: 10},
		"unknown clear":    {kind: kindClear, id: 99},
		"unknown gone":     {kind: kindWithdrawn, id: 99},
	} {
		t.Run(name, func(t *testing.T) {
			world := newWorld(t, 2, testOptions())
			l := world.listeners[1]
			c, err := dialAsRank(t, l, hello{
				lane: laneMessages, from: 0, to: 1, size: 2, job: l.job, group: world.meshes[1].key.group,
			}, testSecret)
			if err != nil {
				t.Fatal(err)
			}
			var b [headerBytes]byte
			h.put(b[:])
			if _, err := c.Write(b[:]); err != nil {
				t.Fatal(err)
			}
			x := newReceive(0, 0, 0, 10)
			world.meshes[1].Post(&x.Message)
			err = world.meshes[1].Finish(newWaiter(), &x.Message)
			var lost *transport.LostError
			if !errors.As(err, &lost) || lost.Peer != 0 || errors.Is(err, transport.ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestParked makes a mesh on one rank, whose goroutine already exchanges frames, long before the other. The
// connection is parked until the other mesh is made. Making a mesh twice is an error.
func TestParked(t *testing.T) {
	opts := testOptions()
	world := newWorld(t, 2, opts)
	group := newGroup()
	peers := [][]string{world.listeners[0].Addrs(), world.listeners[1].Addrs()}
	second := &extraGroup{t: t}
	second.add(world.listeners[0].Mesh(MeshOptions{Group: group, Rank: 0, Peers: peers}))
	ended := make(chan error, 1)
	go func() { ended <- ring(second.meshes[0], newWaiter(), []int{5}) }()
	r := &world.listeners[1].registry
	for {
		r.mu.Lock()
		n := len(r.parked)
		r.mu.Unlock()
		if n > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	second.add(world.listeners[1].Mesh(MeshOptions{Group: group, Rank: 1, Peers: peers}))
	if err := ring(second.meshes[1], newWaiter(), []int{5}); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := world.listeners[1].Mesh(MeshOptions{Group: group, Rank: 1, Peers: peers}); err == nil {
		t.Error("a group could be made twice")
	}
}

// TestParkedTooLong dials for a group that is never made, and exceeds MaxParked. The dialer gets the status
// as an error, and the listener logs a line.
func TestParkedTooLong(t *testing.T) {
	for name, want := range map[string]status{"late": statusLate, "full": statusFull} {
		t.Run(name, func(t *testing.T) {
			book := &logRecorder{}
			opts := testOptions()
			opts.Logger = slog.New(book)
			if want == statusLate {
				opts.ParkTimeout = 20 * time.Millisecond
			}
			opts.MaxParked = 1
			world := newWorld(t, 3, opts)
			peers := [][]string{world.listeners[0].Addrs(), world.listeners[1].Addrs(), world.listeners[2].Addrs()}
			if want == statusFull {
				l := world.listeners[2]
				go func() {
					_, _ = dialAsRank(t, l, hello{from: 0, to: 2, size: 3, job: l.job, group: newGroup()}, testSecret)
				}()
				for full := false; !full; time.Sleep(time.Millisecond) {
					l.registry.mu.Lock()
					full = len(l.registry.parked) == 1
					l.registry.mu.Unlock()
				}
			}
			second := &extraGroup{t: t}
			second.add(world.listeners[0].Mesh(MeshOptions{Group: newGroup(), Rank: 0, Peers: peers}))
			err := second.meshes[0].Exchange(newWaiter(), &transport.Frame{Peer: 2}, nil)
			if !errors.Is(err, want) {
				t.Errorf("got %v", err)
			}
			book.await(t, 1)
		})
	}
}

// TestTLSRefused connects with another job's certificate and without one. The dialer returns a LostError, the
// listener logs a line, and the group continues.
func TestTLSRefused(t *testing.T) {
	for name, other := range map[string]func() Options{
		"another certificate": func() Options { return withTLS(t, testOptions()) },
		"none":                testOptions,
	} {
		t.Run(name, func(t *testing.T) {
			book := &logRecorder{}
			opts := withTLS(t, testOptions())
			opts.Logger = slog.New(book)
			world := newWorld(t, 2, opts)
			world.run(t, func(m *Mesh, w *wait.Waiter) error { return ring(m, w, []int{4}) })
			o := other()
			l, err := Listen(o)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			m, err := l.Mesh(MeshOptions{
				Group: world.meshes[0].key.group, Rank: 1, Peers: [][]string{world.listeners[0].Addrs(), l.Addrs()},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			err = m.Exchange(newWaiter(), &transport.Frame{Peer: 0}, nil)
			var lost *transport.LostError
			if !errors.As(err, &lost) {
				t.Errorf("got %v", err)
			}
			book.await(t, 1)
			world.run(t, func(m *Mesh, w *wait.Waiter) error { return ring(m, w, []int{4}) })
		})
	}
}
