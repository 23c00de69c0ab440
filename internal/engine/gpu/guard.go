package gpu

import (
	"sync"
	"time"
)

// glance is how often a guard looks after a call that takes its time.
const glance = 20 * time.Millisecond

// A guard aborts the communicators if an operation's time is over while NCCL is in
// a call for it. Calls are usually over before it looks: it looks now and then while
// there are calls, because a timer for each would cost as much as a call.
type guard struct {
	mu    sync.Mutex
	timer *time.Timer
	set   bool       // the timer is
	used  bool       // an operation has begun since it was
	o     *operation // nil: none is in a call
	err   error      // why it has aborted
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
		g.timer = time.AfterFunc(glance, g.look)
	} else {
		g.timer.Reset(glance)
	}
}

// end returns why the guard has aborted, if it has.
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
		case o.late():
			g.err = errLate
		}
		if g.err != nil {
			go o.e.abort()
		}
	}
	if g.set = g.used || g.o != nil; g.set {
		g.used = false
		g.timer.Reset(glance)
	}
}
