package wait

import (
	"context"
	"time"
)

// A Host carries waits out in place of the runtime, and starts what would
// otherwise be goroutines: it is how a simulator runs algorithms in its own
// time, one rank at a time. All calls come from what the host runs.
type Host interface {
	// Now returns the host's time.
	Now() time.Time
	// Park returns when something may have changed: c is ready, l is stopped,
	// ctx has ended, or it is until, unless that is zero.
	Park(l *Lot, c Cond, ctx context.Context, until time.Time)
	// Wake is called when what is waited for in l may have come true.
	Wake(l *Lot)
	// Go runs f beside its caller.
	Go(f func())
	// AfterFunc is context.AfterFunc.
	AfterFunc(ctx context.Context, f func()) (stop func() bool)
	// WithTimeout is context.WithTimeout in the host's time.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// NewHostedLot returns a lot whose waiters wait in a host.
func NewHostedLot(h Host) *Lot { return &Lot{stop: make(chan struct{}), host: h} }

// Go runs f beside its caller: on a goroutine, or where the lot's host says.
func (l *Lot) Go(f func()) {
	if l.host != nil {
		l.host.Go(f)
		return
	}
	go f()
}

// AfterFunc is context.AfterFunc, of the lot's host if it has one.
func (l *Lot) AfterFunc(ctx context.Context, f func()) (stop func() bool) {
	if l.host != nil {
		return l.host.AfterFunc(ctx, f)
	}
	return context.AfterFunc(ctx, f)
}

func (l *Lot) now() time.Time {
	if l.host != nil {
		return l.host.Now()
	}
	return time.Now()
}

// parkInHost is wait for a lot that has a host.
func (w *Waiter) parkInHost(c Cond) error {
	for !c.Ready() {
		if _, err := w.Check(); err != nil {
			return err
		}
		var until time.Time
		if w.timeout > 0 {
			until = w.began.Add(w.timeout)
		}
		w.lot.parked.Add(1)
		w.lot.host.Park(w.lot, c, w.ctx, until)
		w.lot.parked.Add(-1)
	}
	return nil
}
