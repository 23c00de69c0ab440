package tutti

import (
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// A driverWatch lets callers return from a failed group although a goroutine of the Comm is in a
// driver call that does not return.
type driverWatch struct {
	once sync.Once
	over chan struct{} // closed by end
}

func (w *driverWatch) end() { w.once.Do(func() { close(w.over) }) }

// watchDriver starts the Comm's driverWatch, once.
func (c *Comm) watchDriver() {
	if c.driver.Load() != nil {
		return
	}
	w := &driverWatch{over: make(chan struct{})}
	if !c.driver.CompareAndSwap(nil, w) {
		return
	}
	go func() {
		select {
		case <-c.e.Failed():
		case <-w.over:
			return
		}
		// The engine itself waits for engine.LetGo until the device no longer uses the
		// callers' memory.
		t := time.NewTimer(engine.LetGo + 200*time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
			c.leaveBehind()
		case <-w.over:
		}
	}()
}

// leaveBehind ends the operations that are under way without the driver. Their goroutines keep
// what they use until the driver returns.
func (c *Comm) leaveBehind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	turn, next := c.turn.Load(), c.queue.first()
	switch {
	case turn&running == 0:
		return
	case len(c.given) > 0:
		c.noteFailed(c.given[0].t.seq)
	case c.giving:
		c.noteFailed(c.gifts[0].seq)
	case next != nil:
		c.noteFailed(next.seq - 1)
	default:
		c.noteFailed(turn / numberOne)
	}
	c.left.Store(true)
	c.dead.Store(true)
	c.lot.Wake(nil)
}
