package wait

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// TestNotice checks that a parked waiter calls its notice repeatedly, and that the error of the
// notice ends the wait.
func TestNotice(t *testing.T) {
	var word atomic.Uint64
	enough := errors.New("enough")
	w := NewWaiter(NewParkingLot(1))
	calls := 0
	w.Notice(time.Millisecond, func(waited time.Duration) error {
		if calls++; waited < time.Duration(calls)*time.Millisecond {
			t.Errorf("call %d after %v", calls, waited)
		}
		if calls == 3 {
			return enough
		}
		return nil
	})
	for range 2 {
		calls = 0
		w.Begin(t.Context(), 0)
		if _, err := w.AtLeast(&word, 1, nil); err != enough || calls != 3 {
			t.Fatalf("%v after %d calls", err, calls)
		}
		w.End()
	}
}

// TestLinger checks that an operation whose context has ended waits on, and not for longer.
func TestLinger(t *testing.T) {
	var word atomic.Uint64
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := NewWaiter(NewParkingLot(1))
	w.Begin(ctx, 0)
	if _, err := w.AtLeast(&word, 1, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.Linger(time.Millisecond)
	if _, err := w.AtLeast(&word, 1, nil); err != ErrTimeout {
		t.Fatal(err)
	}
	w.End()
}
