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

// A member is one rank's engine in a group, and its end of the control channel
// there.
type member struct {
	*network.Engine
	g      *group
	p      *proc
	at     *post
	closed bool

	busy, looking bool
	was, told     network.Position
	pause         int64
}

var _ engine.Hosted = (*member)(nil)

// join makes a process's side of a group.
func (a *post) join(g *group) *member {
	w, rank := a.j.w, slices.Index(g.ranks, a.rank)
	m := &member{g: g, p: a.p, at: a}
	opt := w.opt.Wire
	opt.Timeout, opt.ParkingLot = w.opt.Timeout, g.meshes[rank].lot
	opt.OnFail = m.report
	opt.Excuse = func() *engine.Failure {
		for _, o := range a.members { // the first that was made, which is as good
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

// Host is the process.
func (m *member) Host() wait.Scheduler { return m.p }

// Fail ends the group, and what was to end with it.
func (m *member) Fail(f *engine.Failure) {
	m.Engine.Fail(f)
	m.g.w.s.ctxs.sweep()
}

// Close says goodbye to the other ranks. With its last group the process leaves the job.
func (m *member) Close() error {
	m.closed = true
	err := m.Engine.Close()
	if !slices.ContainsFunc(m.at.members, func(o *member) bool { return !o.closed }) {
		m.at.leave()
	}
	return err
}

// lose ends the group if it has lost ranks.
func (m *member) lose(x *loss) {
	if f := x.failure(m.g); f != nil && !m.closed {
		m.Fail(f)
	}
}

// report has a failure that began here decided on. The caller must not wait, so the decision takes
// no time: the lowest rank that can be reached makes it. If a rank on the way to it knows of an
// earlier cause, or of a loss, the group fails with that.
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
	for _, o := range a.j.posts[:a.rank] {
		if !a.node.Present(o.rank) || m.farFrom(o.p) {
			continue
		}
		if !o.p.dead && !o.leaving && !o.closed {
			by = o
			break
		}
		if m.askFirst(o); m.Failure() != nil {
			return
		}
	}
	by.step(func(now time.Time) { by.node.Decide(now, c.Group) })
	if m.askFirst(by); m.Failure() != nil {
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

// farFrom reports whether a process does not answer this one: a partition lies between them, it is
// stopped, or its host has vanished.
func (m *member) farFrom(p *proc) bool {
	w, own := m.g.w, m.p.rank
	return w.net.blocked(own, p.rank) || w.net.blocked(p.rank, own) || p.frozen || p.dead && !w.reset[p.rank]
}

// askFirst fails the group with what another process knows of its end: the notice is on its way. That
// a process has crashed is known soon, too.
func (m *member) askFirst(o *post) {
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

// looks is how often a rank looks whether it is stuck, and mostLooks what that
// grows to while it stays where it has said to be.
const (
	looks     = 50 * time.Millisecond
	mostLooks = 10 * time.Second
)

// Run carries out calls, and tells the others where this rank is when it is
// stuck.
func (m *member) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	m.busy = true
	if !m.looking && len(m.g.ranks) > 1 {
		m.looking, m.pause = true, int64(looks)
		m.g.w.s.at(m.g.w.s.now+m.pause, m.look)
	}
	err := m.Engine.Run(ctx, seq, calls)
	m.busy = false
	if err == nil {
		m.g.w.ops += len(calls)
	}
	return err
}

func (m *member) look() {
	w, p := m.g.w, m.p
	if p.dead || m.closed || !m.busy {
		m.looking = false
		return
	}
	now, a := m.Position(), m.at
	switch {
	case p.frozen:
	case now != m.was:
		m.was, m.pause = now, int64(looks)
	case now != m.told:
		m.told = now
		a.step(func(t time.Time) { a.node.Tell(t, m.g.name, m.g.ranks, now[:]) })
	default:
		m.pause = min(2*m.pause, int64(mostLooks))
	}
	w.s.at(w.s.now+m.pause, m.look)
}
