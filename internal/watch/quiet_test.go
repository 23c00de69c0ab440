package watch

import (
	"context"
	"slices"
	"testing"
	"time"
)

// TestQuiet has rank 0 leave while a rank is stuck, as a stopped process is: its
// reader waits in a callback. Rank 0 leaves without it, and it finds what it was
// told when it goes on.
func TestQuiet(t *testing.T) {
	members, _ := job(t, 3)
	members[0].hub.vigil.every, members[0].hub.vigil.quiet = 10*time.Millisecond, 100*time.Millisecond
	stuck, release := make(chan struct{}), make(chan struct{})
	members[1].Follow("group", func(int, []byte) {
		close(stuck)
		<-release
	})
	if err := members[2].Tell("group", []int{1, 2}, []byte("here")); err != nil {
		t.Fatal(err)
	}
	<-stuck
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	members[2].up.Close() // a loss that rank 1 does not hear of yet
	for !slices.Contains(members[0].Lost(), 2) {
		time.Sleep(time.Millisecond)
	}
	if err := members[0].Close(ctx); err != nil {
		t.Error(err)
	}
	if ctx.Err() != nil {
		t.Error("rank 0 has waited for a rank that does not answer")
	}
	close(release)
	<-members[1].Ended()
	if lost := members[1].Lost(); !slices.Contains(lost, 2) {
		t.Errorf("rank 1 has heard of the loss of %v", lost)
	}
	for _, m := range members[1:] {
		_ = m.Close(ctx) // rank 0 is gone
	}
}

// TestAnswering has rank 0 stay for a rank that answers until that leaves.
func TestAnswering(t *testing.T) {
	members, _ := job(t, 2)
	h := members[0].hub
	h.vigil.every, h.vigil.quiet = time.Millisecond, deadline
	left := make(chan error)
	go func() { left <- members[0].Close(t.Context()) }()
	heard := func() time.Time {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.vigil.heard[1]
	}
	for last, n := heard(), 0; n < 5; time.Sleep(time.Millisecond) {
		if now := heard(); now.After(last) {
			last = now
			n++
		}
	}
	select {
	case err := <-left:
		t.Errorf("rank 0 has left: %v", err)
	default:
	}
	if err := members[1].Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}

func TestAnsweringLately(t *testing.T) {
	now := time.Now()
	h := &hub{conns: []*conn{nil, new(conn), new(conn), nil}, vigil: vigil{quiet: 3 * time.Second}}
	h.vigil.heard = []time.Time{now, now.Add(-2 * time.Second), now.Add(-4 * time.Second), now}
	for begun, want := range map[time.Duration]int{10 * time.Second: 1, time.Second: 2} {
		if got := h.answering(now.Add(-begun), now); len(got) != want || got[0] != h.conns[1] {
			t.Errorf("asked %v ago, %d answer, want %d", begun, len(got), want)
		}
	}
}
