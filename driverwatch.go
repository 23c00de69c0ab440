package tutti

import (
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// A driverWatch lets callers return from a failed group although a goroutine of the Comm is in a
// call of the device's driver that does not return.
type driverWatch struct {
	once  sync.Once
	ended chan struct{} // closed by end
}

func (w *driverWatch) end() { w.once.Do(func() { close(w.ended) }) }

// watchDriver starts the goroutine of the Comm's driverWatch. After the group has failed, it gives the driver
// engine.AbandonAfter and 200 ms more, and then calls abandonOperations. It ends at once when w.end is
// called.
func (c *Comm) watchDriver() {
	w := &driverWatch{ended: make(chan struct{})}
	c.driver = w
	go func() {
		select {
		case <-c.e.Failed():
		case <-w.ended:
			return
		}
		// The engine itself waits for engine.AbandonAfter until the device no longer uses the
		// callers' memory.
		t := time.NewTimer(engine.AbandonAfter + 200*time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
			c.abandonOperations()
		case <-w.ended:
		}
	}()
}

// abandonOperations fails the operations that are under way without waiting for the driver. Their goroutines
// keep the memory that they use until the driver returns. The goroutine of watchDriver calls it, after the
// group has failed.
func (c *Comm) abandonOperations() {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &c.queue
	turn := q.turn.Load()
	if turn&running == 0 {
		return
	}
	if t, ok := q.onDevice.First(); ok {
		c.noteFailed(t.Seq)
	} else if t, ok := q.waiting.First(); ok {
		c.noteFailed(t.Seq - 1)
	} else {
		c.noteFailed(turn / numberOne)
	}
	q.abandoned.Store(true)
	q.dead.Store(true)
	c.lot.Wake(nil)
}
