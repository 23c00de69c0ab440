package store

import (
	"context"
	"testing"
	"time"
)

// TestQueueWait checks that a call which only waits for a queue leaves the pushed value to a Pop
// that came later, in a Memory and through a server.
func TestQueueWait(t *testing.T) {
	s, err := Listen(t.Context(), "127.0.0.1:0", Config{Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := Dial(t.Context(), s.Addr().String(), Config{Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	memory := NewMemory(Limits{})
	for name, c := range map[string]struct {
		store Store
		state *state
	}{"memory": {memory, memory.s}, "client": {client, s.state}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			waits := make(chan error, 2)
			pop := make(chan error, 1)
			go func() { waits <- c.store.Wait(ctx, "q") }()
			c.state.awaitWaiting(ctx, t, 1)
			go func() { waits <- c.store.Wait(ctx, "q", "q") }()
			c.state.awaitWaiting(ctx, t, 2)
			go func() {
				_, err := c.store.Pop(ctx, "q")
				pop <- err
			}()
			c.state.awaitWaiting(ctx, t, 3)
			if err := c.store.Push(ctx, "q", nil); err != nil {
				t.Fatal(err)
			}
			for _, done := range []chan error{waits, waits, pop} {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// awaitWaiting waits until n requests wait.
func (s *state) awaitWaiting(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for {
		s.mu.Lock()
		waiting := s.waiting
		s.mu.Unlock()
		if waiting == n {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d requests wait, want %d", waiting, n)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestQueueOnePop checks that a pushed value wakes one request that may pop, and the next one only
// if the first took no value.
func TestQueueOnePop(t *testing.T) {
	s := newState(Limits{})
	var list []*waiter
	for range 2 {
		w, err := s.wait([]string{"q"}, true)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, w)
	}
	ready := func(w *waiter) bool {
		select {
		case <-w.ready:
			return true
		default:
			return false
		}
	}
	if err := s.push("q", nil); err != nil {
		t.Fatal(err)
	}
	if !ready(list[0]) || ready(list[1]) {
		t.Error("a value does not wake exactly the first request")
	}
	if s.rewake(list[0]); !ready(list[1]) {
		t.Error("a value that is left over does not wake the second request")
	}
}
