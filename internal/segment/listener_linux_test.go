package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
	"golang.org/x/sys/unix"
)

var testKey = []byte("a key of the tests")

// served returns a listener after Serve.
func served(t *testing.T) *Listener {
	t.Helper()
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	l.Serve(testKey)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// made returns a segment that is unmapped after the test.
func made(t *testing.T, name string, parts int) *Segment {
	t.Helper()
	s, err := New(name, parts, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// requested waits until n requests for a name are pending at a listener.
func requested(t *testing.T, l *Listener, name string, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " requests"), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.requests[string(digest(name))]) == n
	})
}

// eventually waits until is reports true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come to %s", what)
		}
	}
}

// TestPass passes a segment to processes, some of which request it before Pass. All see what the
// others write. Goroutine r sets only maps[r].
func TestPass(t *testing.T) {
	const name, early, n = "tutti-pass", 5, 12
	l, s := served(t), made(t, "tutti-pass", n)
	*(*byte)(s.Part(0)) = 100
	maps := make([]*Segment, n)
	maps[0] = s
	var all sync.WaitGroup
	fetch := func(r int) {
		all.Go(func() {
			fd, err := Fetch(t.Context(), l.Addr(), testKey, name, r)
			if err != nil {
				t.Error(err)
				return
			}
			if maps[r], err = Map(fd, n, 1, r); err != nil {
				t.Error(err)
				return
			}
			*(*byte)(maps[r].Part(r)) = byte(100 + r)
		})
	}
	var ranks []int
	for r := 1; r < n; r++ {
		ranks = append(ranks, r)
		if r < early {
			fetch(r)
		}
	}
	requested(t, l, name, early-1)
	var err error
	all.Go(func() { err = l.Pass(t.Context(), name, s, ranks) })
	for r := early; r < n; r++ {
		fetch(r)
	}
	all.Wait()
	if err != nil || t.Failed() {
		t.Fatal(err)
	}
	for r, m := range maps {
		for i := range n {
			if got := *(*byte)(m.Part(i)); got != byte(100+i) {
				t.Errorf("%d sees %d in part %d", r, got, i)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := countDescriptors(t, name); got != 0 {
		t.Errorf("%d descriptors stay open", got)
	}
	if got := countMappings(t, name); got != 0 {
		t.Errorf("%d mappings stay", got)
	}
	eventually(t, "no connections", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.conns) == 0 && len(l.requests) == 0 && len(l.passing) == 0
	})
}

// TestPassFlood opens more silent connections than maxUnproven. The oldest are closed, and a
// process that knows the key gets the segment.
func TestPassFlood(t *testing.T) {
	const name, extra = "tutti-flood", 50
	l, s := served(t), made(t, name, 2)
	passed := make(chan error, 1)
	go func() { passed <- l.Pass(t.Context(), name, s, []int{1}) }()
	dial := func() net.Conn {
		c, err := net.Dial("unixpacket", socketName(l.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	var strangers []net.Conn
	for range maxUnproven + extra {
		strangers = append(strangers, dial())
	}
	for _, c := range strangers[:extra] {
		if n, err := c.Read(make([]byte, 1)); err == nil && n > 0 {
			t.Errorf("%d bytes", n)
		}
	}
	l.mu.Lock()
	open := len(l.conns)
	l.mu.Unlock()
	if open < maxUnproven-1 || open > maxUnproven+extra {
		t.Errorf("%d connections are open", open)
	}
	fd, err := Fetch(t.Context(), l.Addr(), testKey, name, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-passed, unix.Close(fd)); err != nil {
		t.Error(err)
	}
	eventually(t, "at most as many as there may be", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.conns) <= maxUnproven
	})
}

// TestFetchEvicted evicts the connections of a process that knows the key before its request is
// read. The process retries.
func TestFetchEvicted(t *testing.T) {
	var dropped atomic.Int32
	addr := make([]byte, addrBytes)
	copy(addr, fmt.Sprint(os.Getpid(), " e"))
	l := impostor(t, addr, func(c *net.UnixConn, i int) {
		if i < 3 {
			dropped.Add(1)
			return
		}
		answerWith(t, c, addr, "evicted", 1, passed, []int{int(os.Stdin.Fd())})
	})
	fd, err := Fetch(t.Context(), addr, testKey, "evicted", 1)
	if err != nil {
		t.Fatal(err)
	}
	closeFD(fd)
	l.Close()
	if got := dropped.Load(); got != 3 {
		t.Errorf("%d connections were closed", got)
	}
}

// impostor listens at an address and handles the connections one after the other, in a goroutine
// that ends with the test.
func impostor(t *testing.T, addr []byte, handle func(c *net.UnixConn, i int)) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socketName(addr), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			handle(c, i)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l
}

// answerWith is the listener's side of one connection. It reads the request and sends the status, the right
// proof for this name and rank, and any number of descriptors. It then waits, without a bound of its own, until
// the peer closes the connection: Fetch closes it on every path.
func answerWith(t *testing.T, c *net.UnixConn, addr []byte, name string, rank int, status byte, fds []int) {
	t.Helper()
	if _, err := c.Read(make([]byte, requestBytes)); err != nil {
		t.Error(err)
	}
	text := append([]byte{status}, prove(testKey, answering, socketName(addr), digest(name), rank)...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(text, rights, nil); err != nil {
		t.Error(err)
	}
	_, _ = c.Read(make([]byte, 1)) // returns when Fetch closes its side
}

// TestRefused requests a segment with requests that are invalid, and as a rank that must not have
// it. All are refused, and the right ranks still get the segment.
func TestRefused(t *testing.T) {
	const name = "tutti-strangers"
	l, s := served(t), made(t, name, 3)
	elsewhere := served(t)
	ctx, cancel := context.WithCancel(t.Context())
	passed := make(chan error, 1)
	go func() { passed <- l.Pass(ctx, name, s, []int{1, 2}) }()
	addr := socketName(l.Addr())
	right := request(testKey, addr, name, 1)
	for what, text := range map[string][]byte{
		"another key":          request([]byte("another key"), addr, name, 1),
		"for another listener": request(testKey, socketName(elsewhere.Addr()), name, 1),
		"the rank was changed": slices.Concat(right[:proofBytes+3], []byte{2}, right[proofBytes+4:]),
		"the name was changed": slices.Concat(digest("another"), right[proofBytes:]),
		"no proof":             right[:proofBytes+4],
		"too long":             append(slices.Clone(right), 0),
		"an answer":            prove(testKey, answering, addr, digest(name), 1),
		"a byte":               {1},
		"zeros":                make([]byte, requestBytes),
	} {
		c, err := net.Dial("unixpacket", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(text); err != nil {
			t.Error(err)
		}
		answer, rights := make([]byte, 100), make([]byte, 100)
		n, nr, _, _, err := c.(*net.UnixConn).ReadMsgUnix(answer, rights)
		if n > 0 || nr > 0 {
			t.Errorf("%s: it got %d bytes and %d of descriptors, %v", what, n, nr, err)
		}
		c.Close()
	}
	if _, err := Fetch(t.Context(), l.Addr(), testKey, name, 3); err == nil {
		t.Error("a rank got a segment that is not for it")
	}
	for _, rank := range []int{1, 2} {
		fd, err := Fetch(t.Context(), l.Addr(), testKey, name, rank)
		if err != nil {
			t.Fatal(err)
		}
		closeFD(fd)
	}
	if err := <-passed; err != nil {
		t.Error(err)
	}
	cancel()
}

// TestDescriptors sends descriptors in every invalid way. None may stay open.
func TestDescriptors(t *testing.T) {
	const name = "tutti-descriptors"
	s := made(t, name, 2)
	before := countDescriptors(t, name)
	fds := func(n int) []int { return slices.Repeat([]int{s.FD()}, n) }
	for i, c := range []struct {
		name   string
		handle func(t *testing.T, c *net.UnixConn, addr []byte)
		fails  bool
	}{
		{"one", func(t *testing.T, c *net.UnixConn, addr []byte) { answerWith(t, c, addr, name, 1, passed, fds(1)) }, false},
		{"withheld", func(t *testing.T, c *net.UnixConn, addr []byte) { answerWith(t, c, addr, name, 1, passed, nil) }, true},
		{"not sent", func(t *testing.T, c *net.UnixConn, addr []byte) { answerWith(t, c, addr, name, 1, withheld, nil) }, true},
		{"two at once", func(t *testing.T, c *net.UnixConn, addr []byte) { answerWith(t, c, addr, name, 1, passed, fds(2)) }, true},
		{"more than there is room for", func(t *testing.T, c *net.UnixConn, addr []byte) {
			answerWith(t, c, addr, name, 1, passed, fds(9))
		}, true},
		{"with a refusal", func(t *testing.T, c *net.UnixConn, addr []byte) { answerWith(t, c, addr, name, 1, refused, fds(1)) }, true},
		{"with another status", func(t *testing.T, c *net.UnixConn, addr []byte) { answerWith(t, c, addr, name, 1, 77, nil) }, true},
		{"for another rank", func(t *testing.T, c *net.UnixConn, addr []byte) { answerWith(t, c, addr, name, 2, passed, fds(1)) }, true},
		{"of another name", func(t *testing.T, c *net.UnixConn, addr []byte) { answerWith(t, c, addr, "other", 1, passed, fds(1)) }, true},
		{"without a proof", func(t *testing.T, c *net.UnixConn, _ []byte) {
			if _, _, err := c.WriteMsgUnix([]byte{passed}, unix.UnixRights(fds(1)...), nil); err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, c)
		}, true},
		{"too long", func(t *testing.T, c *net.UnixConn, _ []byte) {
			if _, _, err := c.WriteMsgUnix(make([]byte, 5000), unix.UnixRights(fds(1)...), nil); err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, c)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.name, "more than") && proctest.Emulated() {
				t.Skip("the emulator keeps descriptors for which the program has no room")
			}
			addr := make([]byte, addrBytes)
			copy(addr, fmt.Sprint(os.Getpid(), " ", i))
			came := make(chan struct{}, 1)
			l := impostor(t, addr, func(conn *net.UnixConn, _ int) {
				came <- struct{}{}
				c.handle(t, conn, addr)
			})
			fd, err := Fetch(t.Context(), addr, testKey, name, 1)
			if (err != nil) != c.fails {
				t.Errorf("Fetch: %v", err)
			}
			closeFD(fd)
			<-came
			l.Close()
			eventually(t, "no descriptors", func() bool { return countDescriptors(t, name) == before })
		})
	}
}

// TestLateDescriptors gives up a request before and while the segment is passed. No descriptor may
// stay open, and Pass must wait for the process, which retries.
func TestLateDescriptors(t *testing.T) {
	const name, rounds = "tutti-late", 200
	l, s := served(t), made(t, name, 2)
	before := countDescriptors(t, name)
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error)
	go func() {
		_, err := Fetch(ctx, l.Addr(), testKey, name, 1)
		given <- err
	}()
	requested(t, l, name, 1)
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	requested(t, l, name, 0)
	late := 0
	for i := range rounds {
		passed := make(chan error, 1)
		go func() { passed <- l.Pass(t.Context(), name, s, []int{1}) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*2*time.Microsecond)
		for {
			fd, err := Fetch(ctx, l.Addr(), testKey, name, 1)
			if err == nil {
				closeFD(fd)
			}
			cancel()
			select {
			case err := <-passed:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(100 * time.Microsecond):
				late++
				ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
				continue
			}
			cancel()
			break
		}
	}
	if late == 0 {
		t.Error("no process gave up")
	}
	eventually(t, "no descriptors", func() bool { return countDescriptors(t, name) == before })
}

// TestFetchGone requests a segment from a process that exits or does not exist. Fetch returns
// ErrGone.
func TestFetchGone(t *testing.T) {
	for _, how := range []string{"never there", "before", "while it waits"} {
		t.Run(how, func(t *testing.T) {
			l := served(t)
			addr := l.Addr()
			switch how {
			case "never there":
				addr = make([]byte, addrBytes)
			case "before":
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = served(t)
			}
			fetched := make(chan error, 1)
			go func() {
				_, err := Fetch(t.Context(), addr, testKey, "gone", 1)
				fetched <- err
			}()
			if how == "while it waits" {
				requested(t, l, "gone", 1)
				if err := l.listener.Close(); err != nil { // like the exit of its process
					t.Fatal(err)
				}
				l.mu.Lock()
				for c := range l.conns {
					c.Close()
				}
				l.mu.Unlock()
			}
			if err := <-fetched; !errors.Is(err, ErrGone) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// TestPassEnds ends calls of Pass and Fetch, and listeners, in every way. No goroutine, connection
// or descriptor may stay.
func TestPassEnds(t *testing.T) {
	const name = "tutti-ends"
	goroutines, files := runtime.NumGoroutine(), proctest.OpenFiles()
	s, err := New(name, 2, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	idle, err := Listen() // Serve is not called
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	l.Serve(testKey)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	want := func(want error, f func() error) {
		all.Go(func() {
			if err := f(); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
	fetch := func(ctx context.Context, l *Listener, name string) error {
		_, err := Fetch(ctx, l.Addr(), testKey, name, 1)
		return err
	}
	want(context.Canceled, func() error { return l.Pass(ctx, name, s, []int{1}) })
	want(net.ErrClosed, func() error { return l.Pass(t.Context(), name+" 2", s, []int{1}) })
	want(context.Canceled, func() error { return fetch(ctx, l, "never") })
	want(ErrGone, func() error { return fetch(t.Context(), l, "never") })
	want(context.Canceled, func() error { return fetch(ctx, idle, "never") })
	want(ErrGone, func() error { return fetch(t.Context(), idle, "never") })
	requested(t, l, "never", 2)
	eventually(t, "two calls of Pass", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.passing) == 2
	})
	if err := l.Pass(t.Context(), name, s, []int{1}); err == nil {
		t.Error("it was passed twice at a time")
	}
	cancel()
	requested(t, l, "never", 1)
	if err := errors.Join(l.Close(), idle.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	all.Wait()
	eventually(t, "no goroutines", func() bool { return runtime.NumGoroutine() <= goroutines })
	if got := proctest.OpenFiles(); got > files {
		t.Errorf("%d descriptors, were %d", got, files)
	}
}

// TestWithheld passes a descriptor that cannot be sent. Both sides return an error at once.
func TestWithheld(t *testing.T) {
	const name = "tutti-withheld"
	l, s := served(t), made(t, name, 2)
	if err := s.CloseFD(); err != nil { // so that there is no descriptor
		t.Fatal(err)
	}
	passed := make(chan error, 1)
	go func() { passed <- l.Pass(t.Context(), name, s, []int{1}) }()
	if _, err := Fetch(t.Context(), l.Addr(), testKey, name, 1); err == nil || !strings.Contains(err.Error(), "does not let the other process send") {
		t.Errorf("Fetch: %v", err)
	}
	if err := <-passed; !errors.Is(err, unix.EBADF) {
		t.Errorf("Pass: %v", err)
	}
}

func TestProbe(t *testing.T) {
	before := proctest.OpenFiles()
	if err := Probe(); err != nil {
		t.Error(err)
	}
	if after := proctest.OpenFiles(); after != before {
		t.Errorf("%d descriptors, were %d", after, before)
	}
	if got := countMappings(t, "tutti probe"); got != 0 {
		t.Errorf("%d mappings stay", got)
	}
}
