package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// remembered is how many causes rank 0 has.
func (h *hub) remembered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.causes)
}

// TestCausesAreForgotten fails many groups one after another, reported by each rank in
// turn and by two at once: when all members have heard of it, rank 0 keeps nothing.
func TestCausesAreForgotten(t *testing.T) {
	members, _ := job(t, 3)
	all := []int{0, 1, 2}
	const groups = 300
	for i := range groups {
		name := fmt.Sprint("g", i)
		told := make(chan *engine.Failure, 2*len(all))
		for _, m := range members {
			m.Watch(name, all, func(f *engine.Failure) { told <- f })
		}
		reports := make(chan *engine.Failure, 2)
		for _, m := range []*Member{members[i%3], members[(i+1)%3]} {
			go func() {
				reports <- m.Report(name, &engine.Failure{Kind: engine.ErrAborted, Reason: fmt.Sprint("rank ", m.cfg.Rank)})
			}()
		}
		a, b := <-reports, <-reports
		if a.Reason != b.Reason {
			t.Fatalf("%s: two first causes: %v and %v", name, a, b)
		}
		if f := <-told; f.Reason != a.Reason { // at least the third
			t.Fatalf("%s: %v was told, and %v came first", name, f, a)
		}
		for _, m := range members {
			m.Unwatch(name)
		}
	}
	h := members[0].hub
	for end := time.Now().Add(deadline); h.remembered() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("rank 0 still remembers %d causes", h.remembered())
		}
	}
	leave(t, members)
}

// TestCausesAreBounded has a member that never answers: rank 0 keeps the newest
// causes, and none when that member is gone.
func TestCausesAreBounded(t *testing.T) {
	h := &hub{conns: []*conn{nil, {}, {}}, causes: make(map[string]*judged)}
	const more = 100
	for i := range mostCauses + more {
		h.remember(&Cause{Group: fmt.Sprint(i), From: 1})
		h.sure(fmt.Sprint(i), 1)
	}
	if len(h.causes) != mostCauses || h.causes[fmt.Sprint(more-1)] != nil || h.causes[fmt.Sprint(more)] == nil {
		t.Errorf("%d causes, or not the newest", len(h.causes))
	}
	if h.surely(2); len(h.causes) != 0 {
		t.Errorf("%d causes for nobody", len(h.causes))
	}
}

// TestEarlyCausesAreBounded holds that the newest causes of groups that are not there
// yet are kept, and those of other ranks' groups are not.
func TestEarlyCausesAreBounded(t *testing.T) {
	m := newMember(Config{Rank: 1, Size: 3})
	for i := range 3 * maxEarly {
		m.fail(&Cause{Group: fmt.Sprint(i), Members: []int{0, 1 + i%2}, Kind: "aborted", Reason: "no"})
	}
	if len(m.early) != maxEarly || m.early[fmt.Sprint(3*maxEarly-2)] == nil || m.early[fmt.Sprint(3*maxEarly-1)] != nil {
		t.Errorf("%d causes, or not the newest of this rank's groups", len(m.early))
	}
}
