package gpu

import (
	"sync"
	"time"
)

// guardInterval is how often a guard looks after a call that takes its time.
const guardInterval = 20 * time.Millisecond

// A guard fails the group if an operation's time is over while a goroutine is in a call of
// NCCL or the driver for it. The failure aborts the communicators, which ends the call. If the
// call never ends, all callers but that goroutine's own are told all the same. Calls usually
// return before the guard looks: it looks every guardInterval while there are calls, because a timer
// for each call would cost as much as the call.
type guard struct {
	mu    sync.Mutex
	timer *time.Timer
	set   bool       // the timer runs
	used  bool       // begin was called since the timer was set
	o     *operation // nil: none is in a call
	err   error      // why it has failed the group
}

// begin watches over an operation until end.
func (g *guard) begin(o *operation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.o, g.err, g.used = o, nil, true
	if g.set {
		return
	}
	g.set = true
	if g.timer == nil {
		g.timer = time.AfterFunc(guardInterval, g.look)
	} else {
		g.timer.Reset(guardInterval)
	}
}

// end returns why the guard has failed the group, if it has.
func (g *guard) end() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.o = nil
	return g.err
}

func (g *guard) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.o; o != nil && !g.used && g.err == nil { // it was there last time, too
		switch {
		case o.ctx.Err() != nil:
			g.err = o.ctx.Err()
		case o.pastDeadline():
			g.err = errTimeout
		}
		if g.err != nil {
			late, err := *o, g.err // the operation's own goroutine may change o when its call returns
			go func() { _ = late.fail(err) }()
		}
	}
	if g.set = g.used || g.o != nil; g.set {
		g.used = false
		g.timer.Reset(guardInterval)
	}
}
