package tcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// testTimeout is much longer than any test takes.
const testTimeout = 3 * time.Minute

var testSecret = []byte("a secret for tests")

// world is a group whose ranks each have a listener of their own.
type world struct {
	listeners []*Listener
	meshes    []*Mesh
}

func testOptions() Options {
	return Options{Job: "test", Secret: testSecret, Listen: "127.0.0.1:0"}
}

// newWorld makes a group of n ranks that is closed at the end of the test. It then checks for leaked
// descriptors and goroutines. The test's goroutine makes and closes it.
func newWorld(tb testing.TB, n int, opts Options) *world {
	tb.Helper()
	before := proctest.OpenFiles()
	w := &world{}
	var peers [][]string
	for range n {
		l, err := Listen(opts)
		if err != nil {
			tb.Fatal(err)
		}
		w.listeners = append(w.listeners, l)
		peers = append(peers, l.Addrs())
	}
	tb.Cleanup(func() {
		w.close(tb)
		checkLeft(tb, before)
	})
	group := newGroup()
	for r, l := range w.listeners {
		m, err := l.Mesh(MeshOptions{Group: group, Rank: r, Peers: peers})
		if err != nil {
			tb.Fatal(err)
		}
		m.Handle(new(testHandler))
		w.meshes = append(w.meshes, m)
	}
	return w
}

// A testHandler calls the Owner of a message that is an acceptor, and counts notes. It refuses messages
// that are longer than their body.
type testHandler struct {
	mu    sync.Mutex
	notes []string // guarded by mu
}

type acceptor func(*transport.Message) error

func (h *testHandler) Accept(m *transport.Message) error {
	if f, ok := m.Owner.(acceptor); ok {
		return f(m)
	}
	if m.Len > len(m.Body) {
		return &transport.LengthError{Peer: m.From, Want: len(m.Body), Sent: m.Len}
	}
	return nil
}

func (h *testHandler) Note(from int, n *transport.Note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, fmt.Sprintf("%d: %s", from, bytes.TrimRight(n[:], "\x00")))
}

// heard returns the notes since the last call.
func (h *testHandler) heard() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.notes
	h.notes = nil
	return list
}

// withTLS returns opts with a new job certificate.
func withTLS(tb testing.TB, opts Options) Options {
	tb.Helper()
	cert, key, err := jobtls.NewCertificate(time.Hour)
	if err != nil {
		tb.Fatal(err)
	}
	if opts.TLS, err = jobtls.Config(cert, key); err != nil {
		tb.Fatal(err)
	}
	return opts
}

func newGroup() (g Group) {
	_, _ = rand.Read(g[:])
	return g
}

func (w *world) close(tb testing.TB) {
	for _, m := range w.meshes {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	}
	for _, l := range w.listeners {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	}
}

// run calls f concurrently for all ranks.
func (w *world) run(tb testing.TB, f func(m *Mesh, w *wait.Waiter) error) {
	tb.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(w.meshes))
	for r, m := range w.meshes {
		wg.Go(func() { errs[r] = f(m, newWaiter()) })
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			tb.Errorf("rank %d: %v", r, err)
		}
	}
}

func newWaiter() *wait.Waiter {
	w := wait.NewWaiter(wait.NewParkingLot(1))
	w.Begin(context.Background(), testTimeout)
	return w
}

// checkLeft fails the test if goroutines of this package or descriptors are left. It allows them
// some time to end.
func checkLeft(tb testing.TB, files int) {
	tb.Helper()
	var left string
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if left = ownGoroutines(); left == "" && proctest.OpenFiles() <= files {
			return
		}
	}
	tb.Errorf("%d descriptors where %d were; goroutines:\n%s", proctest.OpenFiles(), files, left)
}

func ownGoroutines() string {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var left []string
	for i, g := range strings.Split(string(stacks), "\n\n") {
		own := strings.Contains(g, "internal/transport/tcp.")
		if i > 0 && own && !strings.Contains(g, "testing.tRunner") && !strings.Contains(g, "testing.(*M).Run") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}

// pattern is the content of bodies. Its length is prime, so that misplaced pieces are detected.
var pattern = func() []byte {
	b := make([]byte, 65_521)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}()

// pieces calls f with the pieces of a body and their expected content, which depends on sender,
// receiver and step.
func pieces(body []byte, from, to, step int, f func(piece, want []byte) bool) {
	at := (from*7919 + to*104_729 + step*31) % len(pattern)
	for len(body) > 0 {
		n := min(len(body), len(pattern)-at)
		if !f(body[:n], pattern[at:at+n]) {
			return
		}
		body, at = body[n:], 0
	}
}

func fill(body []byte, from, to, step int) {
	pieces(body, from, to, step, func(piece, want []byte) bool {
		copy(piece, want)
		return true
	})
}

func checkBody(body []byte, from, to, step int) error {
	var err error
	pieces(body, from, to, step, func(piece, want []byte) bool {
		if !bytes.Equal(piece, want) {
			err = fmt.Errorf("the body of %d bytes of step %d from %d is wrong", len(body), step, from)
		}
		return err == nil
	})
	return err
}

// ring sends a body of each size to the next rank and receives one from the previous rank, all at
// once.
func ring(m *Mesh, w *wait.Waiter, sizes []int) error {
	n, r := m.Size(), m.Rank()
	next, prev := (r+1)%n, (r+n-1)%n
	for step, size := range sizes {
		out := transport.Frame{Peer: next, Body: make([]byte, size)}
		in := transport.Frame{Peer: prev, Body: make([]byte, size)}
		out.Head[0], out.Head[transport.HeadBytes-1] = byte(step), byte(r)
		fill(out.Body, r, next, step)
		if err := m.Exchange(w, &out, &in); err != nil {
			return fmt.Errorf("step %d of %d bytes: %w", step, size, err)
		}
		if in.Head[0] != byte(step) || in.Head[transport.HeadBytes-1] != byte(prev) {
			return fmt.Errorf("step %d: head %v", step, in.Head)
		}
		if err := checkBody(in.Body, prev, r, step); err != nil {
			return err
		}
	}
	return nil
}
