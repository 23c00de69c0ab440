package sim

import (
	"context"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// A proc is a simulated process: one rank of the world, with all its groups. It
// is the host in which its tasks wait.
type proc struct {
	w    *World
	rank int

	dead    bool // it runs no more, though its coroutines may still unwind
	frozen  bool // it is stopped, and may go on later
	stopped bool // it is stopped for good
	left    bool // its function has returned

	parked   []*task
	waiting  []*task  // ready, but frozen
	deferred []func() // control frames that came while it was frozen

	sent    int       // frames, messages, and what it asked of the store
	posts   []*post   // its places in jobs, one after another
	members []*member // its sides of groups
	store   *client   // its way to the store; nil: it has never asked
	dials   []*dial   // that came while it was frozen
}

var _ wait.Scheduler = (*proc)(nil)

// Now is the virtual time.
func (p *proc) Now() time.Time { return p.w.s.time() }

// Park has the running task wait.
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

// current is the running task. One of a dead process ends here.
func (p *proc) current() *task {
	if p.dead {
		panic(killed{})
	}
	return p.w.s.running
}

// Wake makes those ready whose wait in the lot is over.
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

// checkpoint is where a task ends or waits whose process has died or was
// stopped while it ran. It holds no lock.
func (p *proc) checkpoint() {
	t := p.current()
	for p.frozen {
		p.waiting = append(p.waiting, t)
		t.yield(struct{}{})
		if p.dead {
			panic(killed{})
		}
	}
}

// sleep has the running task wait for a while, or until ctx ends.
func (p *proc) sleep(ctx context.Context, d time.Duration) error {
	t := p.current()
	for end := p.w.s.now + int64(d); p.w.s.now < end && ctx.Err() == nil; {
		t.until = end
		p.w.s.ctxs.add(ctx, &t.ctx)
		p.w.s.park(t)
	}
	return ctx.Err()
}

// receive takes a control frame, now or when the process goes on.
func (p *proc) receive(do func()) {
	switch {
	case p.dead:
	case p.frozen:
		p.deferred = append(p.deferred, do)
	default:
		do()
	}
}

// freeze stops the process.
func (p *proc) freeze(forGood bool) {
	s := p.w.s
	p.frozen, p.stopped = true, forGood
	rest := s.ready[:0]
	for _, t := range s.ready {
		if t.p == p {
			p.waiting = append(p.waiting, t)
		} else {
			rest = append(rest, t)
		}
	}
	s.ready = rest
	if !forGood {
		return
	}
	for _, t := range s.tasks {
		if t.p == p && !t.over {
			s.live--
		}
	}
}

// thaw lets it go on.
func (p *proc) thaw() {
	if p.dead || !p.frozen {
		return
	}
	p.frozen = false
	s := p.w.s
	s.ready = append(s.ready, p.waiting...)
	p.waiting = nil
	for _, do := range p.deferred {
		do()
	}
	p.deferred, p.dials = nil, nil
}

// die ends the process. Its coroutines unwind; what they still call fails, and
// reaches nobody.
func (p *proc) die() {
	p.dead, p.frozen = true, false
	for _, m := range p.members {
		m.Fail(&engine.Failure{
			Kind: engine.ErrAborted, Rank: m.Rank(), Told: true, Facts: engine.Facts{Text: "this rank has crashed in the simulation"},
		})
	}
	s := p.w.s
	s.ready = append(s.ready, p.waiting...)
	p.waiting, p.deferred = nil, nil
	for len(p.parked) > 0 {
		s.unpark(p.parked[0])
	}
}
