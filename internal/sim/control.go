package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/wire"
	"github.com/tutti-go/tutti/internal/overlay"
	"github.com/tutti-go/tutti/internal/wait"
)

// A member is one rank's engine in a group, and its end of the control channel
// there.
type member struct {
	*wire.Engine
	g      *group
	p      *proc
	at     *post
	closed bool

	forming       int // groups that are being made of it
	busy, looking bool
	was, told     wire.Position
	pause         int64
}

var _ engine.Hosted = (*member)(nil)

// join makes a process's side of a group.
func (a *post) join(g *group) *member {
	w, rank := a.j.w, slices.Index(g.ranks, a.rank)
	m := &member{g: g, p: a.p, at: a}
	opt := w.opt.Wire
	opt.Timeout, opt.Lot = w.opt.Timeout, g.meshes[rank].lot
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
		if m.forming++; a.mute {
			m.Fail(engine.Unheard(rank))
		}
		defer func() { m.forming-- }()
		return engine.Form(ctx, m, members, func(context.Context) (engine.Engine, error) {
			return a.join(a.j.group(engine.GroupName(g.name, seq, members[0]), ranks)), nil
		})
	}
	m.Engine = wire.New(g.meshes[rank], opt)
	g.members[rank] = m
	a.members, a.p.members = append(a.members, m), append(a.p.members, m)
	if f := a.early[g.name]; f != nil {
		m.Fail(f)
	}
	for r := range a.j.posts { // in order, so that runs are alike
		if reason, gone := a.gone[r]; gone {
			m.lose(r, reason)
		}
	}
	return m
}

// Host is the process.
func (m *member) Host() wait.Host { return m.p }

// Fail ends the group, and what was to end with it.
func (m *member) Fail(f *engine.Failure) {
	m.Engine.Fail(f)
	m.g.w.s.ctxs.sweep()
}

// Close says goodbye to the other ranks.
func (m *member) Close() error {
	m.closed = true
	return m.Engine.Close()
}

// lose ends the group if it has lost a rank.
func (m *member) lose(rank int, reason string) {
	if i := slices.Index(m.g.ranks, rank); i >= 0 && !m.closed {
		m.Fail(&engine.Failure{
			Kind: engine.ErrRankLost, Rank: i, Lost: []int{i}, Told: true,
			Reason: fmt.Sprintf("rank %d is lost: %s", i, reason),
		})
	}
}

// report tells rank 0 of a failure that began here. If rank 0 knows of another,
// or is itself what is lost, that becomes the cause.
func (m *member) report(f *engine.Failure) {
	w, j, a, p := m.g.w, m.g.j, m.at, m.p
	hub := j.hub()
	if p.dead || hub.away() {
		return
	}
	cause := overlay.NewCause(m.g.name, f)
	w.s.log.note(w.s.now, "report", p.rank, f.Rank, int(f.Seq))
	switch {
	case a.mute:
		m.lose(0, a.gone[0])
	case hub.p.dead && w.reset[hub.p.rank]:
		// The end of its connection will be noticed before this rank gives up
		// waiting for a verdict.
		a.lose(0, errReset.Error())
	case w.net.blocked(p.rank, hub.p.rank) || w.net.blocked(hub.p.rank, p.rank) || hub.p.dead || hub.p.frozen:
		w.net.send(&a.up, 0, func() { hub.p.receive(func() { j.judge(m.g, cause, a.rank) }) })
	default:
		for r := range j.posts {
			if reason, gone := hub.gone[r]; gone {
				m.lose(r, reason)
			}
		}
		switch {
		case m.Failure() != nil:
		case m.g.cause != nil:
			m.Fail(m.g.cause.Failure())
		default:
			m.g.cause = cause
			w.net.send(&a.up, 0, func() { hub.p.receive(func() { j.spread(m.g, a.rank) }) })
		}
	}
}

// judge is rank 0's decision on a cause that was long on its way.
func (j *job) judge(g *group, c *overlay.Cause, from int) {
	if g.cause == nil {
		g.cause = c
		j.spread(g, from)
	}
}

// spread has rank 0 tell a group's members why it has ended.
func (j *job) spread(g *group, from int) {
	for i, r := range g.ranks {
		if r != from {
			j.fromHub(r, func() { j.posts[r].fail(g, i) })
		}
	}
}

// fail ends a process's side of a group, also if it comes later.
func (a *post) fail(g *group, rank int) {
	f := g.cause.Failure()
	a.j.w.s.log.note(a.j.w.s.now, "told", a.p.rank, f.Rank, int(f.Seq))
	if m := g.members[rank]; m == nil {
		a.early[g.name] = f
	} else if !m.closed {
		m.Fail(f)
	}
}

// fromHub sends a control frame from rank 0.
func (j *job) fromHub(to int, do func()) {
	a := j.posts[to]
	if to == 0 {
		a.p.receive(do)
		return
	}
	if j.hub().p.dead || j.hub().away() {
		return
	}
	j.w.net.send(&a.down, 0, func() {
		if !a.mute {
			a.p.receive(do)
		}
	})
}

// lose tells a process's groups that a rank is lost.
func (a *post) lose(rank int, reason string) {
	if _, known := a.gone[rank]; known || a.p.dead {
		return
	}
	a.gone[rank] = reason
	a.j.w.s.log.note(a.j.w.s.now, "lost", a.p.rank, a.j.posts[rank].p.rank, 0)
	for _, m := range a.members {
		m.lose(rank, reason)
	}
}

// hangUp is the end of a control connection, as one of its sides sees it.
func (j *job) hangUp(at, of *post, reason string) {
	switch {
	case at.p.dead || of.left() && (of.rank != 0 || of.away()): // rank 0 stays as long as others do
	case of.rank == 0:
		at.p.receive(func() {
			at.mute = true
			at.lose(0, reason)
			for _, m := range at.members {
				if m.forming > 0 {
					m.Fail(engine.Unheard(m.Rank()))
				}
			}
			at.answer(refused)
		})
	case at.rank == 0:
		at.p.receive(func() { j.lose(of, reason) })
	}
}

// lose has rank 0 tell all that it has lost another: when all are there.
func (j *job) lose(of *post, reason string) {
	if !j.formed {
		j.early = append(j.early, loss{of, reason})
		return
	}
	for _, a := range j.posts[1:] {
		if a != of {
			j.fromHub(a.rank, func() { a.lose(of.rank, reason) })
		}
	}
	j.hub().lose(of.rank, reason)
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
	now, j, a := m.Position(), m.g.j, m.at
	switch {
	case p.frozen:
	case now != m.was:
		m.was, m.pause = now, int64(looks)
	case now != m.told && a.rank == 0:
		m.told = now
		j.pass(m.g, 0, now)
	case now != m.told:
		m.told = now
		hub := j.hub().p
		w.net.send(&a.up, 0, func() { hub.receive(func() { j.pass(m.g, a.rank, now) }) })
	default:
		m.pause = min(2*m.pause, int64(mostLooks))
	}
	w.s.at(w.s.now+m.pause, m.look)
}

// maxPassed is how many positions rank 0 remembers to have passed on.
const maxPassed = 64

// passed is a position that rank 0 has passed on.
type passed struct {
	group string
	at    wire.Position
}

// pass has rank 0 tell a group where one of its ranks is, unless another is
// known to be there.
func (j *job) pass(g *group, from int, at wire.Position) {
	x := passed{g.name, at}
	if slices.Contains(j.passed, x) {
		return
	}
	if len(j.passed) == maxPassed {
		j.passed = slices.Delete(j.passed, 0, 1)
	}
	j.passed = append(j.passed, x)
	number := slices.Index(g.ranks, from)
	for i, r := range g.ranks {
		if r == from {
			continue
		}
		j.fromHub(r, func() {
			if m := g.members[i]; m != nil && !m.closed {
				m.Heard(number, at)
			}
		})
	}
}
