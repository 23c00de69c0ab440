package sim

import (
	"context"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/overlay"
	"github.com/tutti-go/tutti/internal/wait"
)

// A member is one rank's engine in a group, and its end of the group's control
// channel.
type member struct {
	*network.Engine
	g      *group
	p      *proc
	at     *participant
	closed bool

	busy    bool             // is in an operation
	looking bool             // checkStuck is scheduled
	was     network.Position // at the last check
	told    network.Position // that was sent last
	pause   int64            // virtual nanoseconds until the next check
}

var _ engine.Hosted = (*member)(nil)

// join makes a process's engine in a group. Losses and a first cause that the
// process learned earlier fail the engine at once. Its callers are the process's
// coroutine, and World.run before the coroutines start.
func (a *participant) join(g *group) *member {
	w, rank := a.j.w, slices.Index(g.ranks, a.rank)
	m := &member{g: g, p: a.p, at: a}
	opt := w.opt.Network
	opt.Timeout, opt.ParkingLot = w.opt.Timeout, g.meshes[rank].lot
	opt.OnFail = m.report
	opt.Excuse = func() *engine.Failure {
		for _, o := range a.members { // of the failed members, the one made first determines the cause
			if f := o.Failure(); f != nil {
				return engine.Excuse(f, o.g.ranks, g.ranks, rank)
			}
		}
		return nil
	}
	opt.Sub = func(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
		ranks := make([]int, len(members))
		for i, r := range members {
			ranks[i] = g.ranks[r]
		}
		return engine.Form(ctx, m, members, func(context.Context) (engine.Engine, error) {
			return a.join(a.j.group(engine.GroupName(g.name, seq, members[0]), ranks)), nil
		})
	}
	m.Engine = network.New(g.meshes[rank], opt)
	g.members[rank] = m
	a.members, a.p.members = append(a.members, m), append(a.p.members, m)
	if f := a.early[g.name]; f != nil {
		m.Fail(f)
	}
	for i := range a.losses {
		m.lose(&a.losses[i])
	}
	return m
}

// Host returns the process.
func (m *member) Host() wait.Scheduler { return m.p }

// Fail fails the group, and ends the contexts that depend on it.
func (m *member) Fail(f *engine.Failure) {
	m.Engine.Fail(f)
	m.g.w.s.ctxs.sweep()
}

// Close announces the departure to the other ranks. With its last group the process
// leaves the job.
func (m *member) Close() error {
	m.closed = true
	err := m.Engine.Close()
	if !slices.ContainsFunc(m.at.members, func(o *member) bool { return !o.closed }) {
		m.at.leave()
	}
	return err
}

// lose fails the group if it has lost ranks.
func (m *member) lose(x *loss) {
	if f := x.failure(m.g); f != nil && !m.closed {
		m.Fail(f)
	}
}

// report lets the control channel decide on a failure that began on this rank. The
// caller must not wait, so the decision takes no time: the lowest rank that can be
// reached makes it. If a rank between knows of an earlier cause, or of a loss, the
// group fails with that.
func (m *member) report(f *engine.Failure) {
	a := m.at
	if m.p.dead || a.closed {
		return
	}
	a.reports++
	c := overlay.NewCause(m.g.name, f)
	c.Members, c.From, c.Report = m.g.ranks, a.rank, a.reports
	m.g.w.s.log.note(m.g.w.s.now, "report", m.p.rank, f.Rank, int(f.Seq))
	by := a
	for _, o := range a.j.participants[:a.rank] {
		if !a.node.Present(o.rank) || m.unreachable(o.p) {
			continue
		}
		if !o.p.dead && !o.leaving && !o.closed {
			by = o
			break
		}
		if m.failWithCauseOf(o); m.Failure() != nil {
			return
		}
	}
	by.step(func(now time.Time) { by.node.Decide(now, c.Group) })
	if m.failWithCauseOf(by); m.Failure() != nil {
		return
	}
	by.step(func(now time.Time) {
		by.node.Report(now, c)
		by.node.Decide(now, c.Group)
	})
	if by != a {
		a.step(func(now time.Time) { a.node.Report(now, c) })
	}
}

// unreachable reports whether a process does not answer this process: a partition
// lies between them, it is stopped, or its host has vanished.
func (m *member) unreachable(p *proc) bool {
	w, own := m.g.w, m.p.rank
	return w.net.blocked(own, p.rank) || w.net.blocked(p.rank, own) || p.suspended || p.dead && !w.reset[p.rank]
}

// failWithCauseOf fails the group with the cause that another process knows, whose
// notification is on its way. The crash of a process also becomes known soon.
func (m *member) failWithCauseOf(o *participant) {
	if o.p.dead {
		m.lose(&loss{[]int{o.rank}, engine.Disconnected})
		return
	}
	for i := range o.losses {
		m.lose(&o.losses[i])
	}
	if first := o.node.First(m.g.name); first != nil && m.Failure() == nil {
		m.Fail(first.Failure())
	}
}

// A rank checks in this interval whether it is stuck. The interval grows up to the
// second value while the rank stays at the position that it has announced.
const (
	stuckInterval    = 50 * time.Millisecond
	maxStuckInterval = 10 * time.Second
)

// Run runs calls, and announces this rank's position when it is stuck.
func (m *member) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	m.busy = true
	if !m.looking && len(m.g.ranks) > 1 {
		m.looking, m.pause = true, int64(stuckInterval)
		m.g.w.s.at(m.g.w.s.now+m.pause, m.checkStuck)
	}
	err := m.Engine.Run(ctx, seq, calls)
	m.busy = false
	if err == nil {
		m.g.w.ops += len(calls)
	}
	return err
}

// checkStuck is an event that repeats while Run runs. If the rank's position has
// not changed since the last check, it sends the position to the group, once per
// position. It stops when the process is dead, the engine is closed, or no
// operation runs.
func (m *member) checkStuck() {
	w, p := m.g.w, m.p
	if p.dead || m.closed || !m.busy {
		m.looking = false
		return
	}
	now, a := m.Position(), m.at
	switch {
	case p.suspended:
	case now != m.was:
		m.was, m.pause = now, int64(stuckInterval)
	case now != m.told:
		m.told = now
		a.step(func(t time.Time) { a.node.SharePosition(t, m.g.name, m.g.ranks, now[:]) })
	default:
		m.pause = min(2*m.pause, int64(maxStuckInterval))
	}
	w.s.at(w.s.now+m.pause, m.checkStuck)
}
