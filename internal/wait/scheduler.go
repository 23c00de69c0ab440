package wait

import (
	"context"
	"time"
)

// A Scheduler replaces the Go runtime for waits and goroutines. A simulator uses it to run
// algorithms in virtual time, one rank at a time. All calls come from code that the Scheduler runs.
type Scheduler interface {
	// Now returns the virtual time.
	Now() time.Time
	// Park returns when something may have changed: c is ready, l is stopped, ctx has ended, or
	// until has passed, unless until is zero.
	Park(l *ParkingLot, c Cond, ctx context.Context, until time.Time)
	// Wake is called when a condition of a waiter in l may have become true.
	Wake(l *ParkingLot)
	// Go runs f concurrently.
	Go(f func())
	// AfterFunc is context.AfterFunc.
	AfterFunc(ctx context.Context, f func()) (stop func() bool)
	// WithTimeout is context.WithTimeout in virtual time.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// NewScheduledParkingLot returns a ParkingLot whose waiters wait in a Scheduler.
func NewScheduledParkingLot(h Scheduler) *ParkingLot {
	return &ParkingLot{stop: make(chan struct{}), scheduler: h}
}

// Go runs f concurrently: in the ParkingLot's Scheduler if it has one, or as a goroutine.
func (l *ParkingLot) Go(f func()) {
	if l.scheduler != nil {
		l.scheduler.Go(f)
		return
	}
	go f()
}

// AfterFunc is context.AfterFunc, in the ParkingLot's Scheduler if it has one.
func (l *ParkingLot) AfterFunc(ctx context.Context, f func()) (stop func() bool) {
	if l.scheduler != nil {
		return l.scheduler.AfterFunc(ctx, f)
	}
	return context.AfterFunc(ctx, f)
}

func (l *ParkingLot) now() time.Time {
	if l.scheduler != nil {
		return l.scheduler.Now()
	}
	return time.Now()
}

// parkInScheduler waits until c is ready in a ParkingLot with a Scheduler. It returns the error of
// Check if the wait must end first.
func (w *Waiter) parkInScheduler(c Cond) error {
	for !c.Ready() {
		now, err := w.Check()
		if err != nil {
			return err
		}
		var until time.Time
		if left := w.untilCheck(now); left > 0 {
			until = now.Add(left)
		}
		w.lot.parked.Add(1)
		w.lot.scheduler.Park(w.lot, c, w.ctx, until)
		w.lot.parked.Add(-1)
	}
	return nil
}
