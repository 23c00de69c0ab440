package control

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/overlay"
)

// A testMesh connects the members of a job by in-memory dialers.
type testMesh struct {
	members []*Member
	mu      sync.Mutex
	ended   map[int]bool // ranks that have ended; guarded by mu
}

// connectAll calls Reach on all members, with dialers that refuse ended ranks. The members'
// goroutines call the dialers.
func connectAll(members []*Member) *testMesh {
	w := &testMesh{members: members, ended: make(map[int]bool)}
	for from, m := range members {
		m.Reach(func(_ context.Context, to int) (net.Conn, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.ended[to] {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			near, far, err := connected()
			if err == nil {
				go w.members[to].Accept(from, far)
			}
			return near, err
		})
	}
	return w
}

// connected returns a connection with a socket buffer, like those of real ranks.
func connected() (near, far net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	far, err = l.Accept()
	return near, far, err
}

// end kills a rank or lets it leave.
func (w *testMesh) end(t *testing.T, rank int, leaves bool) {
	t.Helper()
	if leaves {
		leave(t, w.members[rank:rank+1])
	}
	w.mu.Lock()
	w.ended[rank] = true
	w.mu.Unlock()
	if !leaves {
		kill(w.members[rank])
	}
}

// TestWithoutRankZero ends rank 0 and then rank 1, by a kill or in good order, before and after the
// ranks have links to each other. The other ranks are notified of all later events.
func TestWithoutRankZero(t *testing.T) {
	for name, c := range map[string]struct{ leaves, linked bool }{
		"dies at once": {}, "leaves at once": {leaves: true}, "dies": {linked: true}, "leaves": {leaves: true, linked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members, _ := joinAll(t, 6)
			w := connectAll(members)
			if c.linked {
				for _, m := range members {
					m.awaitLinks(t)
				}
			}
			rest := []int{2, 3, 4, 5}
			aborted, lost := make(chan *engine.Failure, 10), make(chan *engine.Failure, 10)
			for _, r := range rest {
				members[r].Watch("aborted", rest, func(f *engine.Failure) { aborted <- f })
				members[r].Watch("lost", rest, func(f *engine.Failure) { lost <- f })
			}
			w.end(t, 0, c.leaves)
			w.end(t, 1, c.leaves)
			members[4].reportTimeout = deadline
			if f := members[4].Report("aborted", &engine.Failure{Kind: engine.ErrAborted, Rank: 2, Facts: engine.Facts{Text: "no"}}); f.Reason() != "no" {
				t.Error(f)
			}
			for range 3 {
				if f := <-aborted; !errors.Is(f, engine.ErrAborted) || f.Reason() != "no" {
					t.Error(f)
				}
			}
			w.end(t, 5, false)
			for range 3 {
				if f := <-lost; !errors.Is(f, engine.ErrRankLost) || !slices.Equal(f.Lost, []int{3}) {
					t.Error(f)
				}
			}
			for _, m := range members[2:5] {
				knows := m.Lost
				if c.leaves {
					knows = m.Left
				}
				for end := time.Now().Add(deadline); !slices.Contains(knows(), 0) || !slices.Contains(knows(), 1); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("rank %d: %v are lost, %v have left", m.cfg.Rank, m.Lost(), m.Left())
					}
				}
			}
			leave(t, members[2:5])
		})
	}
}

// awaitLinks waits until a rank has links at the distances 1, 2 and 4.
func (m *Member) awaitLinks(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
		m.nodeMu.Lock()
		linked := true
		for _, d := range []int{1, 2, 4} {
			linked = linked && len(m.links[(m.cfg.Rank+d)%m.cfg.Size]) > 0
		}
		m.nodeMu.Unlock()
		if linked {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("rank %d has not connected to its neighbours", m.cfg.Rank)
		}
	}
}

// TestDialResults distinguishes ranks that have exited from ranks that are stopped or cut off.
func TestDialResults(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: err} }
	timeout := &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	for _, c := range []struct {
		err  error
		want overlay.DialResult
	}{
		{dial(syscall.ECONNREFUSED), overlay.Refused},
		{errors.New("another process listens there"), overlay.Refused},
		{dial(syscall.EHOSTUNREACH), overlay.CutOff},
		{dial(context.DeadlineExceeded), overlay.CutOff},
		{timeout, overlay.Unanswered},
		{errors.Join(context.DeadlineExceeded, timeout), overlay.Unanswered},
	} {
		if got := dialResult(c.err); got != c.want {
			t.Errorf("%v is %d, want %d", c.err, got, c.want)
		}
	}
}
