package wait

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestDeferWake defers wake-ups of a sleeping side. It must be woken when the deferring waiter
// begins to wait, calls DeferWake or StoreAndWake, and when its operation ends.
func TestDeferWake(t *testing.T) {
	var words, sleeping [2]atomic.Uint64
	var other atomic.Uint64
	lots := [2]*ParkingLot{
		NewPeerParkingLot(runtime.NumCPU() < 2, &sleeping[0], []*atomic.Uint64{&sleeping[1]}),
		NewPeerParkingLot(runtime.NumCPU() < 2, &sleeping[1], []*atomic.Uint64{&sleeping[0]}),
	}
	w := NewWaiter(lots[0])
	for i, end := range []func() error{
		func() error { _, err := w.AtLeast(&words[1], 1, nil); return err },
		func() error { w.DeferWake(&other); w.Flush(); return nil },
		func() error { w.StoreAndWake(&other, 1); return nil },
		func() error { return nil },
	} {
		words[0].Store(0)
		words[1].Store(0)
		var side sync.WaitGroup
		side.Go(func() {
			p := NewWaiter(lots[1])
			p.Begin(t.Context(), time.Minute)
			if ok, err := p.AtLeast(&words[0], 1, nil); !ok || err != nil {
				t.Errorf("%d: %v, %v", i, ok, err)
			}
			p.End()
			words[1].Store(1)
			lots[1].Wake(&words[1])
		})
		for sleeping[1].Load() == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		w.Begin(t.Context(), time.Minute)
		words[0].Store(1)
		w.DeferWake(&words[0])
		if err := end(); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		w.End()
		if w.deferred != nil {
			t.Errorf("%d: nobody was looked for", i)
		}
		side.Wait()
	}
}
