package gpu

import (
	"sync"
	"time"
)

// glance is how often a guard looks after a call that takes its time.
const glance = 20 * time.Millisecond

// A guard aborts the communicators if an operation's time is over while NCCL is in
// a call for it. Calls are usually over before it has a first look: it costs next
// to nothing then.
type guard struct {
	mu    sync.Mutex
	timer *time.Timer
	o     *operation // nil: none is in a call
	err   error      // why it has aborted
}

// begin watches over an operation until end.
func (g *guard) begin(o *operation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.o, g.err = o, nil
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
	g.timer.Stop()
	g.o = nil
	return g.err
}

func (g *guard) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch o := g.o; {
	case o == nil:
		return
	case o.ctx.Err() != nil:
		g.err = o.ctx.Err()
	case o.late():
		g.err = errLate
	default:
		g.timer.Reset(glance)
		return
	}
	go g.o.e.abort()
}
