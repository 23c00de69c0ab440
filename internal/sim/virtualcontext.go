package sim

import (
	"context"
	"slices"
	"time"
)

// virtualContext ends at a virtual time, when its parent ends, or when it is
// cancelled.
type virtualContext struct {
	context.Context // the parent
	s               *sched
	deadline        time.Time // zero: no deadline of its own
	done            chan struct{}
	err             error
	parent          ctxWait
	after           map[int]func() // by number, in the order of which the functions are called
	numbered        int
}

func (s *sched) newContext(parent context.Context) *virtualContext {
	c := &virtualContext{Context: parent, s: s, done: make(chan struct{}), after: make(map[int]func())}
	c.parent.fire = func() { c.end(parent.Err()) }
	if err := parent.Err(); err != nil {
		c.end(err)
	} else {
		s.ctxs.add(parent, &c.parent)
	}
	return c
}

// withTimeout is context.WithTimeout in virtual time.
func (s *sched) withTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c := s.newContext(parent)
	d = max(d, 0)
	c.deadline = s.time().Add(d)
	s.at(s.now+int64(d), func() {
		c.end(context.DeadlineExceeded)
		s.ctxs.sweep()
	})
	return c, func() { c.end(context.Canceled) }
}

func (c *virtualContext) end(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.s.ctxs.remove(&c.parent)
	close(c.done)
	for i := range c.numbered {
		if f := c.after[i]; f != nil {
			f()
		}
	}
	c.after = nil
}

// Deadline is the earlier of this context's and its parent's deadline.
func (c *virtualContext) Deadline() (time.Time, bool) {
	theirs, ok := c.Context.Deadline()
	if c.deadline.IsZero() || ok && theirs.Before(c.deadline) {
		return theirs, ok
	}
	return c.deadline, true
}

// Done is closed when the context has ended.
func (c *virtualContext) Done() <-chan struct{} { return c.done }

// Err returns why the context has ended.
func (c *virtualContext) Err() error { return c.err }

// AfterFunc lets contexts of package context that are derived from this context end
// with it, at once and without a goroutine.
func (c *virtualContext) AfterFunc(f func()) func() bool {
	if c.err != nil {
		f()
		return func() bool { return false }
	}
	i := c.numbered
	c.numbered++
	c.after[i] = f
	return func() bool {
		_, pending := c.after[i]
		delete(c.after, i)
		return pending
	}
}

// contexts are the contexts whose end a task waits for. A context ends while a task
// runs or by an event of the simulator, so sweep checks them then.
type contexts struct {
	list   []*ctxGroup
	byDone map[<-chan struct{}]*ctxGroup
}

type ctxGroup struct {
	ctx   context.Context
	waits []*ctxWait
}

// A ctxWait calls fire when a context has ended.
type ctxWait struct {
	g    *ctxGroup // nil: no wait
	i    int
	fire func()
}

func (c *contexts) add(ctx context.Context, w *ctxWait) {
	done := ctx.Done()
	if done == nil {
		return
	}
	g := c.byDone[done]
	if g == nil {
		g = &ctxGroup{ctx: ctx}
		c.byDone[done] = g
		c.list = append(c.list, g)
	}
	w.g, w.i = g, len(g.waits)
	g.waits = append(g.waits, w)
}

func (c *contexts) remove(w *ctxWait) {
	g := w.g
	if g == nil {
		return
	}
	last := len(g.waits) - 1
	g.waits[w.i] = g.waits[last]
	g.waits[w.i].i = w.i
	g.waits = g.waits[:last]
	w.g = nil
}

// keepContexts is how many contexts without waiters are kept.
const keepContexts = 64

// sweep fires the waits of contexts that have ended. It also forgets contexts
// without waits when there are more than keepContexts.
func (c *contexts) sweep() {
	for i := 0; i < len(c.list); i++ {
		g := c.list[i]
		if len(g.waits) == 0 || g.ctx.Err() == nil {
			continue
		}
		for len(g.waits) > 0 {
			w := g.waits[len(g.waits)-1]
			c.remove(w)
			w.fire()
		}
	}
	if len(c.list) > keepContexts {
		c.list = slices.DeleteFunc(c.list, func(g *ctxGroup) bool {
			if len(g.waits) == 0 {
				delete(c.byDone, g.ctx.Done())
			}
			return len(g.waits) == 0
		})
	}
}
