package watch

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// TestRankZeroHearsLast: rank 0, which has found out by itself that a rank is
// lost, is not told that another had said so before, while there are ranks that
// have not been told anything: it may exit at once.
func TestRankZeroHearsLast(t *testing.T) {
	m := newMember(Config{Rank: 0, Size: 3})
	h := &hub{m: m, conns: make([]*conn, 3), causes: make(map[string]*judged)}
	m.hub = h
	var far [3]net.Conn
	for r := 1; r < 3; r++ {
		near, f := net.Pipe()
		far[r], h.conns[r] = f, newConn(near)
		t.Cleanup(func() { near.Close(); f.Close() })
	}
	told := make(chan *engine.Failure, 2)
	m.Watch("g", []int{0, 1, 2}, func(f *engine.Failure) { told <- f })
	lost := &engine.Failure{Kind: engine.ErrRankLost, Lost: []int{2}, Reason: "rank 1 says so"}
	first := NewCause("g", lost)
	first.From, first.Members = 1, []int{0, 1, 2}
	go h.judge(first)
	// It is being told to rank 1, and rank 2 has heard nothing.
	if _, err := far[1].Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	verdict := make(chan *engine.Failure, 1)
	go func() {
		verdict <- m.Report("g", &engine.Failure{Kind: engine.ErrRankLost, Lost: []int{2}, Reason: "rank 0 says so"})
	}()
	var f *engine.Failure
	select {
	case f = <-verdict:
		t.Errorf("rank 0 has heard of %v before the others", f)
	case <-time.After(50 * time.Millisecond): // most of the time enough to see it go wrong
	}
	for r := 1; r < 3; r++ {
		go func() { _, _ = io.Copy(io.Discard, far[r]) }()
	}
	if f == nil {
		f = <-verdict
	}
	if f.Reason != lost.Reason {
		t.Errorf("the verdict is %v", f)
	}
	if f := <-told; f.Reason != lost.Reason {
		t.Errorf("the group has ended with %v", f)
	}
}

// TestOwnCauseStands: a rank whose cause was judged to be the first has not come
// back with it yet when one who was told of it has left. That is not what its
// group has ended with.
func TestOwnCauseStands(t *testing.T) {
	m := newMember(Config{Rank: 0, Size: 3})
	told := make(chan *engine.Failure, 1)
	m.Watch("g", []int{0, 1, 2}, func(f *engine.Failure) { told <- f })
	c := NewCause("g", &engine.Failure{Kind: engine.ErrRankLost, Lost: []int{2}, Reason: "rank 0 says so"})
	c.Report = 1
	verdict := make(chan *Cause, 1)
	m.verdicts[1] = report{"g", verdict}
	m.fail(c)
	m.lose(1, "it has exited")
	select {
	case f := <-told:
		t.Errorf("the group has ended with %v", f)
	default:
	}
	if v := <-verdict; v != c {
		t.Errorf("the verdict is %v", v)
	}
	if lost := m.Lost(); !slices.Equal(lost, []int{1}) {
		t.Errorf("%v are lost", lost)
	}
}

// TestBeat: both sides of a connection say something now and then, but not for
// ever to one who says nothing.
func TestBeat(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c, other := newConn(near), newConn(far)
	over := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		c.beat(6*time.Millisecond, over)
		close(ended)
	}()
	for range 3 {
		if f, err := other.receive(maxFrame); err != nil || f.Kind != beat {
			t.Fatal(f, err)
		}
	}
	c.unheard.Store(beatsUnheard) // as if that had gone on
	heard := make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			if _, err := other.receive(maxFrame); err != nil {
				heard <- n
				return
			}
		}
	}()
	for c.unheard.Load() < beatsUnheard+10 {
		time.Sleep(time.Millisecond)
	}
	close(over)
	<-ended
	near.Close()
	if n := <-heard; n > 1 { // one may have been on its way
		t.Errorf("%d were sent to one who says nothing", n)
	}
}

// TestHostLost: when a host does not answer, all its ranks are lost, at once; when
// a process ends, it alone is.
func TestHostLost(t *testing.T) {
	m := newMember(Config{Rank: 1, Size: 6})
	m.Hosts([]int{0, 1, 0, 1, 4, 0})
	told := make(chan *engine.Failure, 1)
	m.Watch("g", []int{1, 2, 0, 3, 5}, func(f *engine.Failure) { told <- f })
	m.lose(5, "its process has ended")
	if f := <-told; !slices.Equal(f.Lost, []int{4}) {
		t.Errorf("%v are lost: %v", f.Lost, f)
	}
	m.lose(0, silent)
	if f := <-told; !slices.Equal(f.Lost, []int{1, 2}) || f.Reason != "ranks 1 and 2 are lost: the host does not answer" {
		t.Errorf("%v are lost: %v", f.Lost, f)
	}
	if lost := m.Lost(); !slices.Equal(lost, []int{0, 2, 5}) {
		t.Errorf("%v are lost", lost)
	}
	m.lose(2, silent) // nothing new
	m.lose(3, silent) // on this rank's own host: that answers
	if f := <-told; !slices.Equal(m.Lost(), []int{0, 2, 3, 5}) {
		t.Errorf("%v are lost: %v", m.Lost(), f)
	}
}
