package gpu

import (
	"sync"
	"time"
)

// guardInterval is how often a guard checks a call that is under way.
const guardInterval = 20 * time.Millisecond

// A guard fails the group if an operation's deadline passes or its context ends while a goroutine
// is in a call of NCCL or the driver for it. The failure aborts the communicators, which ends the
// call. If the call never returns, only that goroutine does not see the failure. The guard checks
// every guardInterval while there are calls, because a timer for each call would cost as much as
// the call. Most calls return before the first check.
type guard struct {
	mu    sync.Mutex // guards all fields
	timer *time.Timer
	set   bool       // the timer runs
	used  bool       // begin was called since the timer was set
	o     *operation // whose call is under way; nil: none
	err   error      // the error with which the guard has failed the group; nil: it has not
}

// begin watches a call for an operation until end.
func (g *guard) begin(o *operation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.o, g.err, g.used = o, nil, true
	if g.set {
		return
	}
	g.set = true
	if g.timer == nil {
		g.timer = time.AfterFunc(guardInterval, g.check)
	} else {
		g.timer.Reset(guardInterval)
	}
}

// end returns the error with which the guard has failed the group, or nil.
func (g *guard) end() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.o = nil
	return g.err
}

// check fails the group if the call was under way at the last check as well, and its context has ended or its
// deadline has passed. It runs on the timer's goroutine and fails the group on another one, because fail may
// wait. The timer runs on while calls are made.
func (g *guard) check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.o; o != nil && !g.used && g.err == nil { // also at the last check
		switch {
		case o.ctx.Err() != nil:
			g.err = o.ctx.Err()
		case o.pastDeadline():
			g.err = errTimeout
		}
		if g.err != nil {
			late, err := *o, g.err // a copy: the operation's goroutine may change o when its call returns
			go func() { _ = late.fail(err) }()
		}
	}
	if g.set = g.used || g.o != nil; g.set {
		g.used = false
		g.timer.Reset(guardInterval)
	}
}
