package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/wire"
	"github.com/tutti-go/tutti/internal/wait"
	"github.com/tutti-go/tutti/internal/watch"
)

// A member is one rank's engine in a group, and its end of the control channel
// there.
type member struct {
	*wire.Engine
	g      *group
	p      *proc
	closed bool

	forming       int // groups that are being made of it
	busy, looking bool
	was, told     wire.Position
	pause         int64
}

var _ engine.Hosted = (*member)(nil)

// join makes a process's side of a group.
func (w *World) join(p *proc, g *group) *member {
	rank := slices.Index(g.ranks, p.rank)
	m := &member{g: g, p: p}
	opt := w.opt.Wire
	opt.Timeout, opt.Lot = w.opt.Timeout, g.meshes[rank].lot
	opt.OnFail = m.report
	opt.Excuse = func() *engine.Failure {
		for _, o := range p.members { // the first that was made, which is as good
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
		if m.forming++; p.mute {
			m.Fail(engine.Unheard(rank))
		}
		defer func() { m.forming-- }()
		return engine.Form(ctx, m, members, func(context.Context) (engine.Engine, error) {
			return w.join(p, w.group(fmt.Sprintf("%s/%d.%d", g.name, seq, members[0]), ranks)), nil
		})
	}
	m.Engine = wire.New(g.meshes[rank], opt)
	g.members[rank] = m
	p.members = append(p.members, m)
	if f := p.early[g.name]; f != nil {
		m.Fail(f)
	}
	for r := range w.procs { // in order, so that runs are alike
		if reason, gone := p.gone[r]; gone {
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
	w, p := m.g.w, m.p
	hub := w.procs[0]
	if p.dead {
		return
	}
	cause := watch.NewCause(m.g.name, f)
	w.s.log.note(w.s.now, "report", p.rank, f.Rank, int(f.Seq))
	switch {
	case p.mute:
		m.lose(0, p.gone[0])
	case hub.dead && w.reset[0]:
		// The end of its connection will be noticed before this rank gives up
		// waiting for a verdict.
		p.lose(0, errReset.Error())
	case w.net.blocked(p.rank, 0) || w.net.blocked(0, p.rank) || hub.dead || hub.frozen:
		w.net.send(p.up(), 0, func() { hub.receive(func() { w.judge(m.g, cause, p.rank) }) })
	default:
		for r := range w.procs {
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
			w.net.send(p.up(), 0, func() { hub.receive(func() { w.spread(m.g, p.rank) }) })
		}
	}
}

// judge is rank 0's decision on a cause that was long on its way.
func (w *World) judge(g *group, c *watch.Cause, from int) {
	if g.cause == nil {
		g.cause = c
		w.spread(g, from)
	}
}

// spread has rank 0 tell a group's members why it has ended.
func (w *World) spread(g *group, from int) {
	for i, r := range g.ranks {
		if r != from {
			w.fromHub(r, func() { w.procs[r].fail(g, i) })
		}
	}
}

// fail ends a process's side of a group, also if it comes later.
func (p *proc) fail(g *group, rank int) {
	f := g.cause.Failure()
	p.w.s.log.note(p.w.s.now, "told", p.rank, f.Rank, int(f.Seq))
	if m := g.members[rank]; m == nil {
		p.early[g.name] = f
	} else if !m.closed {
		m.Fail(f)
	}
}

// fromHub sends a control frame from rank 0.
func (w *World) fromHub(to int, do func()) {
	p := w.procs[to]
	if to == 0 {
		p.receive(do)
		return
	}
	if w.procs[0].dead {
		return
	}
	w.net.send(&w.down[to], 0, func() {
		if !p.mute {
			p.receive(do)
		}
	})
}

// up is the process's lane to rank 0.
func (p *proc) up() *lane { return &p.w.ups[p.rank] }

// lose tells a process's groups that a rank is lost.
func (p *proc) lose(rank int, reason string) {
	if _, known := p.gone[rank]; known || p.dead {
		return
	}
	p.gone[rank] = reason
	p.w.s.log.note(p.w.s.now, "lost", p.rank, rank, 0)
	for _, m := range p.members {
		m.lose(rank, reason)
	}
}

// hangUp is the end of a control connection, as one of its sides sees it.
func (w *World) hangUp(at, of *proc, reason string) {
	switch {
	case at.dead || of.left && of.rank != 0: // rank 0 stays as long as others do
	case of.rank == 0:
		at.receive(func() {
			at.mute = true
			at.lose(0, reason)
			for _, m := range at.members {
				if m.forming > 0 {
					m.Fail(engine.Unheard(m.Rank()))
				}
			}
		})
	case at.rank == 0:
		at.receive(func() {
			for _, p := range w.procs[1:] {
				if p != of {
					w.fromHub(p.rank, func() { p.lose(of.rank, reason) })
				}
			}
			at.lose(of.rank, reason)
		})
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
	return err
}

func (m *member) look() {
	w, p := m.g.w, m.p
	if p.dead || m.closed || !m.busy {
		m.looking = false
		return
	}
	now := m.Position()
	switch {
	case p.frozen:
	case now != m.was:
		m.was, m.pause = now, int64(looks)
	case now != m.told && p.rank == 0:
		m.told = now
		w.pass(m.g, 0, now)
	case now != m.told:
		m.told = now
		hub := w.procs[0]
		w.net.send(p.up(), 0, func() { hub.receive(func() { w.pass(m.g, p.rank, now) }) })
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
func (w *World) pass(g *group, from int, at wire.Position) {
	x := passed{g.name, at}
	if slices.Contains(w.passed, x) {
		return
	}
	if len(w.passed) == maxPassed {
		w.passed = slices.Delete(w.passed, 0, 1)
	}
	w.passed = append(w.passed, x)
	number := slices.Index(g.ranks, from)
	for i, r := range g.ranks {
		if r == from {
			continue
		}
		w.fromHub(r, func() {
			if m := g.members[i]; m != nil && !m.closed {
				m.Heard(number, at)
			}
		})
	}
}
