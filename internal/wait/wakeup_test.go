package wait

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestWakeup ends a pause in progress, and one that begins after a Signal that it has not seen.
func TestWakeup(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		var b Wakeup
		p := Poller{MinPause: maxPause, Wakeup: &b, Seen: b.Count()}
		var ring sync.WaitGroup
		if late == 0 {
			b.Signal()
		} else {
			ring.Go(func() {
				time.Sleep(late)
				b.Signal()
			})
		}
		pauses := 0
		for b.Count() == p.Seen {
			p.Pause()
			pauses++
		}
		ring.Wait()
		p.Pause() // it has not seen the Signal, so it does not wait
		if b.Count() != 1 || late > 0 && pauses == 0 {
			t.Errorf("%d rings, %d pauses", b.Count(), pauses)
		}
	}
}

// TestParkAtOnce parks a waiter at once, and ends its wait by a wake-up and by cancellation, from
// another goroutine. ParkAtOnce does not apply to the next operation.
func TestParkAtOnce(t *testing.T) {
	l := NewParkingLot(1)
	w := NewWaiter(l)
	ctx, cancel := context.WithCancel(t.Context())
	w.Begin(ctx, time.Minute)
	w.ParkAtOnce()
	var word atomic.Uint64
	var helper sync.WaitGroup
	again := make(chan struct{})
	// awaitParked has no bound of its own: a waiter that never parked would make the test hang until the
	// timeout of go test, which prints all stacks.
	awaitParked := func() {
		for l.parked.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	helper.Go(func() {
		awaitParked()
		word.Store(1)
		l.Wake(&word)
		<-again
		awaitParked()
		cancel()
	})
	if err := w.For(&wordCond{word: &word, least: 1}); err != nil {
		t.Error(err)
	}
	close(again)
	if err := w.For(&wordCond{word: &word, least: 2}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	helper.Wait()
	w.End()
	w.Begin(t.Context(), time.Minute)
	if w.parkAtOnce {
		t.Error("ParkAtOnce still applies to the next operation")
	}
}

// TestNeverYield waits like processes for each other's words without yielding, for short waits and
// for waits that sleep.
func TestNeverYield(t *testing.T) {
	var words, sleeping [2]atomic.Uint64
	lots := [2]*ParkingLot{
		NewPeerParkingLot(false, &sleeping[0], []*atomic.Uint64{&sleeping[1]}),
		NewPeerParkingLot(false, &sleeping[1], []*atomic.Uint64{&sleeping[0]}),
	}
	const rounds = 200
	var sides sync.WaitGroup
	for i, l := range lots {
		l.NeverYield()
		sides.Go(func() {
			w := NewWaiter(l)
			w.Begin(t.Context(), time.Minute)
			defer w.End()
			for n := range uint64(rounds) {
				if i == 0 && n%20 == 0 {
					time.Sleep(2 * spinPeerFor)
				}
				w.StoreAndWake(&words[i], n+1)
				if ok, err := w.AtLeast(&words[1-i], n+1, nil); !ok || err != nil {
					t.Errorf("side %d, round %d: %v, %v", i, n, ok, err)
					return
				}
			}
		})
	}
	sides.Wait()
}
