package control

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/overlay"
)

// TestOwnCauseStays: a rank's cause was decided to be the first, but its Report has not returned.
// Another rank that was notified leaves. The departure must not replace the cause.
func TestOwnCauseStays(t *testing.T) {
	m := newMember(Config{Rank: 0, Size: 3})
	told := make(chan *engine.Failure, 1)
	m.Watch("g", []int{0, 1, 2}, func(f *engine.Failure) { told <- f })
	c := overlay.NewCause("g", &engine.Failure{Kind: engine.ErrRankLost, Lost: []int{2}, Facts: engine.Facts{Text: "rank 0 says so"}})
	c.Report = 1
	verdict := make(chan *engine.Failure, 1)
	m.pendingReports[1] = &pendingReport{"g", verdict}
	m.failGroup(c)
	m.lose([]int{1}, "it has exited")
	select {
	case f := <-told:
		t.Errorf("the group has ended with %v", f)
	default:
	}
	if v := <-verdict; v != nil {
		t.Errorf("the verdict is %v", v)
	}
	if lost := m.Lost(); !slices.Equal(lost, []int{1}) {
		t.Errorf("%v are lost", lost)
	}
}

// TestHeartbeats checks that both sides send heartbeats, and stop after maxUnanswered heartbeats
// without an answer.
func TestHeartbeats(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c, other := newConn(near), newConn(far)
	over := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		c.sendHeartbeats(6*time.Millisecond, over)
		close(ended)
	}()
	for range 3 {
		if f, err := other.receive(maxFrame); err != nil || f.Kind != heartbeat {
			t.Fatal(f, err)
		}
	}
	c.unanswered.Store(maxUnanswered) // as after many unanswered heartbeats
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
	for c.unanswered.Load() < maxUnanswered+10 {
		time.Sleep(time.Millisecond)
	}
	close(over)
	<-ended
	near.Close()
	if n := <-heard; n > 1 { // one heartbeat may have been in transit
		t.Errorf("%d were sent to one who says nothing", n)
	}
}

// TestLosses notifies a group of ranks that are lost one by one and together.
func TestLosses(t *testing.T) {
	m := newMember(Config{Rank: 1, Size: 6})
	told := make(chan *engine.Failure, 1)
	m.Watch("g", []int{1, 2, 0, 3, 5}, func(f *engine.Failure) { told <- f })
	m.lose([]int{5}, "its process has ended")
	if f := <-told; !slices.Equal(f.Lost, []int{4}) {
		t.Errorf("%v are lost: %v", f.Lost, f)
	}
	m.lose([]int{0, 2}, overlay.Silent)
	if f := <-told; !slices.Equal(f.Lost, []int{1, 2}) || f.Reason() != "ranks 1 and 2 are lost: their host does not answer; call Shrink to continue without them" {
		t.Errorf("%v are lost: %v", f.Lost, f)
	}
	if lost := m.Lost(); !slices.Equal(lost, []int{0, 2, 5}) {
		t.Errorf("%v are lost", lost)
	}
}

// TestEarlyCausesAreBounded checks that a Member keeps the newest causes of groups that it has not
// formed, and none of groups without this rank.
func TestEarlyCausesAreBounded(t *testing.T) {
	m := newMember(Config{Rank: 1, Size: 3})
	for i := range 3 * maxEarly {
		m.failGroup(&overlay.Cause{Group: fmt.Sprint(i), Members: []int{0, 1 + i%2}, Kind: "aborted", Facts: engine.Facts{Text: "no"}})
	}
	if len(m.early) != maxEarly || m.early[fmt.Sprint(3*maxEarly-2)] == nil || m.early[fmt.Sprint(3*maxEarly-1)] != nil {
		t.Errorf("%d causes, or not the newest of this rank's groups", len(m.early))
	}
}

// TestReportAfterLoss has a rank find, after it was notified of a loss, that a rank that was
// notified before it has exited. The loss stays the cause.
func TestReportAfterLoss(t *testing.T) {
	m := newMember(Config{Rank: 0, Size: 3})
	m.Watch("g", []int{0, 1, 2}, func(*engine.Failure) {})
	m.lose([]int{2}, engine.Exited)
	later := &engine.Failure{Kind: engine.ErrRankLost, Rank: 1, Lost: []int{1}, Facts: engine.Facts{Event: engine.RanksLost, Loss: engine.Exited}}
	if first := m.Report("g", later); !slices.Equal(first.Lost, []int{2}) {
		t.Errorf("the first cause is %v", first)
	}
	if first := m.Cause("g"); first == nil || !slices.Equal(first.Lost, []int{2}) {
		t.Errorf("the first cause is %v", first)
	}
}
