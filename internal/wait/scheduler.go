package wait

import (
	"context"
	"time"
)

// A Host carries waits out in place of the runtime, and starts what would
// otherwise be goroutines: it is how a simulator runs algorithms in its own
// time, one rank at a time. All calls come from what the host runs.
type Scheduler interface {
	// Now returns the host's time.
	Now() time.Time
	// Park returns when something may have changed: c is ready, l is stopped,
	// ctx has ended, or it is until, unless that is zero.
	Park(l *ParkingLot, c Cond, ctx context.Context, until time.Time)
	// Wake is called when what is waited for in l may have come true.
	Wake(l *ParkingLot)
	// Go runs f beside its caller.
	Go(f func())
	// AfterFunc is context.AfterFunc.
	AfterFunc(ctx context.Context, f func()) (stop func() bool)
	// WithTimeout is context.WithTimeout in the host's time.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// NewHostedLot returns a lot whose waiters wait in a host.
func NewScheduledParkingLot(h Scheduler) *ParkingLot {
	return &ParkingLot{stop: make(chan struct{}), scheduler: h}
}

// Go runs f beside its caller: on a goroutine, or where the lot's host says.
func (l *ParkingLot) Go(f func()) {
	if l.scheduler != nil {
		l.scheduler.Go(f)
		return
	}
	go f()
}

// AfterFunc is context.AfterFunc, of the lot's host if it has one.
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

// parkInHost is wait for a lot that has a host.
func (w *Waiter) parkInScheduler(c Cond) error {
	for !c.Ready() {
		if _, err := w.Check(); err != nil {
			return err
		}
		var until time.Time
		if w.timeout > 0 {
			until = w.began.Add(w.timeout)
		}
		w.lot.parked.Add(1)
		w.lot.scheduler.Park(w.lot, c, w.ctx, until)
		w.lot.parked.Add(-1)
	}
	return nil
}
