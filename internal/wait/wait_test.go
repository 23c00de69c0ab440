package wait

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestEnds ends waits for every reason except the timeout (see TestTimeout), while spinning and while parked. A timer's goroutine ends
// the wait. No waiter may stay in the ParkingLot.
func TestEnds(t *testing.T) {
	var word, gone atomic.Uint64
	for name, test := range map[string]struct {
		end  func(l *ParkingLot, cancel context.CancelFunc)
		ok   bool
		want error
	}{
		"value":  {func(l *ParkingLot, _ context.CancelFunc) { word.Store(5); l.Wake(&word) }, true, nil},
		"gone":   {func(l *ParkingLot, _ context.CancelFunc) { gone.Store(1); l.Wake(&gone) }, false, nil},
		"stop":   {func(l *ParkingLot, _ context.CancelFunc) { l.Stop(); l.Stop() }, false, ErrStopped},
		"cancel": {func(_ *ParkingLot, cancel context.CancelFunc) { cancel() }, false, context.Canceled},
	} {
		for _, pause := range []time.Duration{0, 3 * time.Millisecond} {
			word.Store(0)
			gone.Store(0)
			l := NewParkingLot(1)
			w := NewWaiter(l)
			ctx, cancel := context.WithCancel(t.Context())
			w.Begin(ctx, time.Minute)
			time.AfterFunc(pause, func() { test.end(l, cancel) })
			ok, err := w.AtLeast(&word, 5, &gone)
			if ok != test.ok || !errors.Is(err, test.want) {
				t.Errorf("%s after %v: %v, %v", name, pause, ok, err)
			}
			w.End()
			cancel()
			if l.parked.Load() != 0 || len(l.waiters) != 0 {
				t.Errorf("%s: a waiter is still parked", name)
			}
		}
	}
}

// TestEndsTooLate makes a condition true after a poll and ends the wait before the next poll, as
// when other ranks go on at once and stop the group. The wait must succeed.
func TestEndsTooLate(t *testing.T) {
	for name, end := range map[string]func(l *ParkingLot, cancel context.CancelFunc){
		"stop":   func(l *ParkingLot, _ context.CancelFunc) { l.Stop() },
		"cancel": func(_ *ParkingLot, cancel context.CancelFunc) { cancel() },
	} {
		l := NewParkingLot(1)
		w := NewWaiter(l)
		ctx, cancel := context.WithCancel(t.Context())
		w.Begin(ctx, time.Minute)
		c := &lateCond{end: func() { end(l, cancel) }}
		if err := w.For(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := w.Check(); err == nil || c.looks != pollsPerCheck+1 {
			t.Errorf("%s: the end came elsewhere: %v after %d looks", name, err, c.looks)
		}
		w.End()
		cancel()
	}
}

// lateCond becomes true after the waiter's last poll before its checks, and then calls end.
type lateCond struct {
	looks int
	end   func()
}

func (c *lateCond) Ready() bool {
	if c.looks++; c.looks == pollsPerCheck {
		c.end()
	}
	return c.looks > pollsPerCheck
}

func TestTimeout(t *testing.T) {
	var word atomic.Uint64
	for _, timeout := range []time.Duration{time.Nanosecond, 5 * time.Millisecond} {
		w := NewWaiter(NewParkingLot(1))
		w.Begin(t.Context(), timeout)
		if _, err := w.AtLeast(&word, 1, nil); !errors.Is(err, ErrTimeout) {
			t.Errorf("%v: %v", timeout, err)
		}
	}
}

// TestPeers waits as processes do, each on the other's word: one side counts up, the other follows,
// with pauses in which it sleeps.
func TestPeers(t *testing.T) {
	const rounds = 300
	var words, sleeping [2]atomic.Uint64
	var sides sync.WaitGroup
	for i := range 2 {
		sides.Go(func() {
			l := NewPeerParkingLot(runtime.NumCPU() < 2, &sleeping[i], []*atomic.Uint64{&sleeping[1-i]})
			w := NewWaiter(l)
			w.Begin(t.Context(), time.Minute)
			for n := uint64(1); n <= rounds; n++ {
				if i == 0 && n%100 == 0 {
					time.Sleep(2 * yieldPeerFor)
				}
				words[i].Store(n)
				l.Wake(&words[i])
				if ok, err := w.AtLeast(&words[1-i], n, nil); !ok || err != nil {
					t.Errorf("side %d, round %d: %v, %v", i, n, ok, err)
					return
				}
			}
		})
	}
	sides.Wait()
	if sleeping[0].Load() != 0 || sleeping[1].Load() != 0 {
		t.Error("somebody is still counted as asleep")
	}
}

// TestMany parks many waiters on one word and wakes those whose value is reached.
func TestMany(t *testing.T) {
	var word atomic.Uint64
	l := NewParkingLot(1 << 20)
	var waiters sync.WaitGroup
	for v := uint64(1); v <= 20; v++ {
		waiters.Go(func() {
			w := NewWaiter(l)
			w.Begin(t.Context(), time.Minute)
			if ok, err := w.AtLeast(&word, v, nil); !ok || err != nil || word.Load() < v {
				t.Errorf("%d: %v, %v at %d", v, ok, err, word.Load())
			}
		})
	}
	for word.Load() < 20 {
		word.Add(1)
		l.Wake(&word)
		time.Sleep(100 * time.Microsecond)
	}
	waiters.Wait()
}
