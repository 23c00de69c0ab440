package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/proctest"
)

func ignoreFailure(*engine.Failure) {}

// noFDListener is a listener whose first calls of Accept fail for lack of descriptors.
type noFDListener struct {
	net.Listener
	left int
}

func (b *noFDListener) Accept() (net.Conn, error) {
	if b.left > 0 {
		b.left--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return b.Listener.Accept()
}

// TestManyPending opens a thousand idle connections before and while the ranks join. All ranks
// join, and at the end all idle connections are closed.
func TestManyPending(t *testing.T) {
	const crowd, n = 1000, 4
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := new(proctest.Output)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	members := make([]*Member, n)
	errs := make([]error, n)
	var ranks sync.WaitGroup
	join := func(r int, l net.Listener) {
		ranks.Go(func() {
			members[r], errs[r] = Join(ctx, Config{
				Rank: r, Size: n, Addr: inner.Addr().String(), Listener: l, Secret: []byte("secret"),
				Logger: slog.New(slog.NewTextHandler(log, nil)),
			})
		})
	}
	join(0, &noFDListener{inner, 3})
	var strangers []net.Conn
	for i := range crowd {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		strangers = append(strangers, c)
		if i%2 == 0 {
			_, _ = c.Write([]byte{0, 0, 0}) // an incomplete frame; the connection may be closed already
		}
		// The ranks join one by one among the many connections.
		if r := i/200 - 1; i%200 == 199 && r > 0 && r < n {
			join(r, nil)
		}
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if lines := log.Lines(); !strings.Contains(lines[0], "cannot accept") {
		t.Errorf("the listener was never out of breath: %q", lines[0])
	}
	// Wait for the challenge on every connection before the listener is closed. A connection that
	// is not accepted by then is reset by the kernel without a line in the log.
	for _, c := range strangers {
		_ = c.SetDeadline(time.Now().Add(deadline))
		_, _ = c.Read(make([]byte, 1)) // it may be closed already
	}
	leave(t, members)
	for _, c := range strangers {
		for err = error(nil); err == nil; {
			_, err = c.Read(make([]byte, 1024))
		}
		if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
			t.Fatal("a stranger is still there")
		}
	}
	if len(log.Lines()) < crowd {
		t.Errorf("%d lines for %d strangers", len(log.Lines()), crowd)
	}
}

// TestPositions sends positions. All other members receive each distinct position once.
func TestPositions(t *testing.T) {
	members, _ := joinAll(t, 4)
	defer leave(t, members)
	some := []int{0, 1, 3}
	heard := make(chan string, 100)
	for r, m := range members {
		m.HandlePositions("g", func(from int, position []byte) { heard <- fmt.Sprintf("%d from %d: %s", r, from, position) })
	}
	tell := func(from int, position string) { members[from].SendPosition("g", some, []byte(position)) }
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for range want {
			got = append(got, <-heard)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	tell(1, "a")
	expect("0 from 1: a", "3 from 1: a")
	tell(0, "b")
	expect("1 from 0: b", "3 from 0: b")
	tell(3, "b") // equal to an earlier position
	tell(3, "c")
	expect("0 from 3: c", "1 from 3: c")
	members[1].StopPositions("g")
	tell(0, "d")
	expect("3 from 0: d")
	if len(heard) > 0 {
		t.Errorf("also heard: %s", <-heard)
	}
}
