package sim

import (
	"context"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// A proc is a simulated process: one rank of the world, with all its groups. It is
// the Scheduler in which its tasks wait.
type proc struct {
	w    *World
	rank int

	dead      bool // it runs no more, but its coroutines may still unwind
	suspended bool // it is stopped, and may be resumed later
	stopped   bool // it is stopped forever
	left      bool // its function has returned
	waiting   bool // it is a newcomer that was not admitted; the run does not wait for it

	parked   []*task
	held     []*task  // ready, but the process is suspended
	deferred []func() // control frames that have arrived while it was suspended

	sent         int            // frames, messages, and requests to the store
	participants []*participant // its participants in jobs, in order of joining
	members      []*member      // its engines in groups
	store        *client        // its connection to the store; nil: not used yet
	dials        []*dial        // that have arrived while it was suspended
}

var _ wait.Scheduler = (*proc)(nil)

// Now returns the virtual time.
func (p *proc) Now() time.Time { return p.w.s.time() }

// Park makes the running task wait.
func (p *proc) Park(l *wait.ParkingLot, c wait.Cond, ctx context.Context, until time.Time) {
	t := p.current()
	t.lot, t.cond, t.until = l, c, 0
	if !until.IsZero() {
		t.until = int64(until.Sub(start))
	}
	p.w.s.ctxs.add(ctx, &t.ctx)
	p.w.s.park(t)
	t.lot, t.cond = nil, nil
}

// current returns the running task. A task of a dead process ends here.
func (p *proc) current() *task {
	if p.dead {
		panic(killed{})
	}
	return p.w.s.running
}

// Wake makes the tasks ready whose wait in the ParkingLot has ended.
func (p *proc) Wake(l *wait.ParkingLot) {
	for i := 0; i < len(p.parked); {
		if t := p.parked[i]; t.lot == l && (l.Stopped() || t.cond.Ready()) {
			p.w.s.unpark(t)
		} else {
			i++
		}
	}
}

// Go starts a task.
func (p *proc) Go(f func()) {
	if !p.dead {
		p.w.s.spawn(p, f)
	}
}

// AfterFunc starts a task when a context has ended.
func (p *proc) AfterFunc(ctx context.Context, f func()) (stop func() bool) {
	if ctx.Err() != nil {
		p.Go(f)
		return func() bool { return false }
	}
	w := &ctxWait{fire: func() { p.Go(f) }}
	p.w.s.ctxs.add(ctx, w)
	return func() bool {
		pending := w.g != nil
		p.w.s.ctxs.remove(w)
		return pending
	}
}

// WithTimeout is context.WithTimeout in virtual time.
func (p *proc) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return p.w.s.withTimeout(ctx, d)
}

// checkpoint ends or suspends a task whose process has died or was stopped while
// the task ran. The task must hold no lock.
func (p *proc) checkpoint() {
	t := p.current()
	for p.suspended {
		p.held = append(p.held, t)
		t.yield(struct{}{})
		if p.dead {
			panic(killed{})
		}
	}
}

// sleep makes the running task wait for a time, or until ctx ends.
func (p *proc) sleep(ctx context.Context, d time.Duration) error {
	t := p.current()
	for end := p.w.s.now + int64(d); p.w.s.now < end && ctx.Err() == nil; {
		t.until = end
		p.w.s.ctxs.add(ctx, &t.ctx)
		p.w.s.park(t)
	}
	return ctx.Err()
}

// receive handles a control frame, now or when the process is resumed.
func (p *proc) receive(do func()) {
	switch {
	case p.dead:
	case p.suspended:
		p.deferred = append(p.deferred, do)
	default:
		do()
	}
}

// stop stops the process, forever or until resume. Its ready tasks wait in
// p.held. The run does not wait for the tasks of a process that is stopped
// forever.
func (p *proc) stop(forGood bool) {
	s := p.w.s
	p.suspended, p.stopped = true, forGood
	rest := s.ready[:0]
	for _, t := range s.ready {
		if t.p == p {
			p.held = append(p.held, t)
		} else {
			rest = append(rest, t)
		}
	}
	s.ready = rest
	if forGood && !p.waiting {
		s.live -= p.tasks()
	}
}

// tasks returns the number of its tasks that have not ended.
func (p *proc) tasks() (n int) {
	for _, t := range p.w.s.tasks {
		if t.p == p && !t.over {
			n++
		}
	}
	return n
}

// admit makes the run wait for a newcomer.
func (p *proc) admit() {
	if p.waiting && !p.stopped {
		p.w.s.live += p.tasks()
	}
	p.waiting = false
}

// awaited reports whether the run waits for the process's tasks.
func (p *proc) awaited() bool { return !p.stopped && !p.waiting }

// resume lets a stopped process continue.
func (p *proc) resume() {
	if p.dead || !p.suspended {
		return
	}
	p.suspended = false
	s := p.w.s
	s.ready = append(s.ready, p.held...)
	p.held = nil
	for _, do := range p.deferred {
		do()
	}
	p.deferred, p.dials = nil, nil
}

// die ends the process. Its coroutines unwind; calls that they still make fail and
// have no effect on others.
func (p *proc) die() {
	p.dead, p.suspended = true, false
	for _, m := range p.members {
		m.Fail(&engine.Failure{
			Kind: engine.ErrAborted, Rank: m.Rank(), Told: true, Facts: engine.Facts{Text: "this rank has crashed in the simulation"},
		})
	}
	s := p.w.s
	s.ready = append(s.ready, p.held...)
	p.held, p.deferred = nil, nil
	for len(p.parked) > 0 {
		s.unpark(p.parked[0])
	}
}
