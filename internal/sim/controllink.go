package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/overlay"
)

// connectTime bounds a dial of a silent host. It is a copy of controlConnectTime in package tcp, which
// simulated ranks do not import.
const connectTime = time.Second

// controlLink is a control connection between two participants of a job. Side 0 has
// dialed.
type controlLink struct {
	ends  [2]*participant
	lanes [2]lane // by the side that sends
	shut  [2]bool // the side reads nothing more from the link
}

func newControlLink(from, to *participant) *controlLink {
	return &controlLink{
		ends: [2]*participant{from, to}, lanes: [2]lane{{from: from.p, to: to.p}, {from: to.p, to: from.p}},
	}
}

// side returns which end of the link a participant is.
func (l *controlLink) side(a *participant) int {
	if l.ends[0] == a {
		return 0
	}
	return 1
}

// send calls do at the other end of the link, after everything that was sent on it
// before, if that end still reads then.
func (l *controlLink) send(a *participant, do func(to *participant)) {
	i := l.side(a)
	to := l.ends[1-i]
	a.j.w.net.send(&l.lanes[i], 0, func() {
		to.p.receive(func() {
			if !l.shut[1-i] && !to.closed {
				do(to)
			}
		})
	})
}

func (a *participant) attach(rank int, l *controlLink) { a.links[rank] = append(a.links[rank], l) }

func (a *participant) detach(rank int, l *controlLink) {
	a.links[rank] = slices.DeleteFunc(a.links[rank], func(o *controlLink) bool { return o == l })
}

// open starts the Node with the links of Join.
func (a *participant) open() {
	a.node = overlay.New(a.rank, len(a.j.participants), a.j.w.opt.HostTimeout)
	a.node.Begin()
	if a.rank != 0 {
		l := newControlLink(a, a.j.rank0())
		a.attach(0, l)
		a.j.rank0().attach(a.rank, l)
	}
}

// step passes an input to the Node, now or when the process is resumed, and
// performs its actions.
func (a *participant) step(do func(now time.Time)) {
	a.p.receive(func() {
		if a.closed || a.node == nil {
			return
		}
		do(a.p.Now())
		a.perform()
	})
}

// perform performs the Node's actions in order. An action can pass an input to the
// Node; the actions that follow from it come after the others.
func (a *participant) perform() {
	if a.performing {
		return
	}
	a.performing = true
	for list := a.node.Take(); len(list) > 0; list = a.node.Take() {
		for i := range list {
			a.carryOut(&list[i])
		}
	}
	a.performing = false
	if a.leaving && (a.leaveAtOnce || a.node.MayExit()) {
		a.close()
		return
	}
	a.arm()
}

// carryOut performs one action of the Node.
func (a *participant) carryOut(x *overlay.Action) {
	switch x.Do {
	case overlay.Send:
		a.send(x.Rank, x.Message)
	case overlay.Dial:
		a.dial(a.j.participants[x.Rank])
	case overlay.Unlink:
		a.drop(x.Rank)
	case overlay.Lose:
		a.lose(x.Ranks, x.Reason)
	case overlay.Depart:
		a.departed[x.Rank] = true
	case overlay.Fail:
		a.fail(x.Cause)
	case overlay.NotifyPosition:
		a.hear(x.Message)
	}
}

// arm schedules the Node's next tick, unless an earlier one is scheduled. While the
// participant leaves, it ticks every overlay.LeaveTick.
func (a *participant) arm() {
	w := a.j.w
	t, due := a.node.Next()
	at := int64(t.Sub(start))
	if a.leaving {
		at, due = w.s.now+int64(overlay.LeaveTick), true
	}
	at = max(at, w.s.now)
	if !due || a.armed != 0 && a.armed <= at {
		return
	}
	a.armed = at
	w.s.at(at, func() {
		if a.armed == at {
			a.p.receive(func() {
				a.armed = 0
				a.step(a.node.Tick)
			})
		}
	})
}

// send sends a message on the newest link to a rank.
func (a *participant) send(rank int, m *overlay.Message) {
	links := a.links[rank]
	if len(links) == 0 {
		return
	}
	if m.Kind != overlay.Ask && m.Kind != overlay.Here {
		a.j.w.s.log.note(a.j.w.s.now, "control", a.p.rank, a.j.participants[rank].p.rank, int(m.Kind))
	}
	links[len(links)-1].send(a, func(to *participant) {
		to.step(func(now time.Time) { to.node.Receive(now, a.rank, m) })
	})
}

// drop stops using a link that this rank has not dialed. Messages that the other
// side has sent on it before it learns of that are still read.
func (a *participant) drop(rank int) {
	i := slices.IndexFunc(a.links[rank], func(l *controlLink) bool { return l.side(a) == 0 })
	l := a.links[rank][i]
	a.detach(rank, l)
	l.send(a, func(to *participant) {
		l.shut[1] = true
		if slices.Contains(to.links[a.rank], l) {
			to.detach(a.rank, l)
			to.step(func(now time.Time) { to.node.LinkDropped(now, a.rank, false) })
		}
	})
}

// end is the end of a link without a goodbye, as one side sees it.
func (l *controlLink) end(at *participant, reason engine.Loss) {
	at.p.receive(func() {
		i := l.side(at)
		of := l.ends[1-i].rank
		l.shut[i] = true
		if slices.Contains(at.links[of], l) {
			at.detach(of, l)
			at.step(func(now time.Time) { at.node.LinkDown(now, of, i == 0, reason) })
		}
	})
}

// A dial is a connection attempt in progress.
type dial struct {
	from, to *participant
	over     bool
}

// fail ends the dial, unless it has a result.
func (d *dial) fail(why overlay.DialResult) {
	if !d.over {
		d.over = true
		d.from.step(func(now time.Time) { d.from.node.DialFailed(now, d.to.rank, why) })
	}
}

// dial connects to another participant and returns at once. An event later passes
// the result to the Node: a link, or the reason why there is none. A participant
// that has died or closed meanwhile gets no result.
func (a *participant) dial(to *participant) {
	w, d := a.j.w, &dial{from: a, to: to}
	w.later(w.net.delay(a.p.rank, to.p.rank), func() {
		switch {
		case a.p.dead || a.closed:
		case w.net.blocked(a.p.rank, to.p.rank) || w.net.blocked(to.p.rank, a.p.rank) || to.p.dead && !w.reset[to.p.rank]:
			w.later(int64(connectTime), func() { d.fail(overlay.CutOff) })
		case to.p.dead || to.closed:
			w.later(w.net.delay(to.p.rank, a.p.rank), func() { d.fail(overlay.Refused) })
		case to.p.suspended:
			to.p.dials = append(to.p.dials, d)
			to.p.receive(d.accept)
			w.later(int64(overlay.DialTime), func() { d.fail(overlay.Unanswered) })
		default:
			d.accept()
		}
	})
}

// accept is the answer of the dialed process. It arrives at the other side before
// all messages on the link.
func (d *dial) accept() {
	a, to, w := d.from, d.to, d.from.j.w
	switch {
	case d.over || a.p.dead || a.closed:
		return
	case to.closed:
		w.later(w.net.delay(to.p.rank, a.p.rank), func() { d.fail(overlay.Refused) })
		return
	}
	l := newControlLink(a, to)
	to.attach(a.rank, l)
	w.net.send(&l.lanes[1], 0, func() { a.p.receive(func() { d.up(l) }) })
	w.later(int64(w.opt.HostTimeout), func() { d.fail(overlay.CutOff) })
	to.step(func(now time.Time) { to.node.LinkUp(now, a.rank, false) })
}

// up adds the new link at the side that has dialed. If this side has given up or
// closed meanwhile, the link ends at the other side.
func (d *dial) up(l *controlLink) {
	a, to, w := d.from, d.to, d.from.j.w
	if d.over || a.closed {
		l.shut[0] = true
		w.later(w.net.delay(a.p.rank, to.p.rank), func() { l.end(to, engine.Disconnected) })
		return
	}
	d.over = true
	a.attach(to.rank, l)
	a.step(func(now time.Time) { a.node.LinkUp(now, to.rank, true) })
	switch { // the other side ended when this side did not know of the link
	case to.p.dead && !w.reset[to.p.rank]:
		w.later(w.hostTimeout(), func() { l.end(a, overlay.Silent) })
	case to.p.dead || l.shut[1]:
		w.later(w.net.delay(to.p.rank, a.p.rank), func() { l.end(a, engine.Disconnected) })
	}
}

// hangUp is the end of the control connections with another rank, as one side sees
// it.
func (a *participant) hangUp(of *participant, err error) {
	reason := engine.Disconnected
	if errors.Is(err, errSilent) {
		reason = engine.HostSilent
	}
	a.p.receive(func() {
		switch {
		case a.node == nil && a.rank == 0:
			a.j.early = append(a.j.early, func() { a.hangUp(of, err) })
		case of.rank == 0:
			a.answer(refused)
		}
		for _, l := range slices.Clone(a.links[of.rank]) {
			l.end(a, reason)
		}
	})
}

// leave announces the departure to the other ranks. The process does not wait for
// them: the participant closes when they know, or after overlay.LeaveTime.
func (a *participant) leave() {
	if a.leaving || a.closed || a.node == nil {
		return
	}
	a.leaving = true
	a.j.w.later(int64(overlay.LeaveTime), func() { a.p.receive(a.close) })
	a.step(a.node.Leave)
}

// close ends all links. Nothing accepts connections any more.
func (a *participant) close() {
	if a.closed || a.p.dead {
		return
	}
	a.closed = true
	for r := range a.j.participants {
		for _, l := range a.links[r] {
			l.shut[l.side(a)] = true
			l.send(a, func(to *participant) { l.end(to, engine.Disconnected) })
		}
	}
	clear(a.links)
}

// lose notifies the process's groups that ranks are lost.
func (a *participant) lose(ranks []int, reason engine.Loss) {
	for _, r := range ranks {
		a.j.w.s.log.note(a.j.w.s.now, "lost", a.p.rank, a.j.participants[r].p.rank, 0)
	}
	x := loss{ranks, reason}
	a.losses = append(a.losses, x)
	for _, m := range a.members {
		m.lose(&x)
	}
}

// fail passes the first cause to the process's engine in a group, also if the
// engine is made later. The rank that reported the cause keeps its own failure,
// which has more details.
func (a *participant) fail(c *overlay.Cause) {
	if c.From == a.rank {
		return
	}
	f := c.Failure()
	a.j.w.s.log.note(a.j.w.s.now, "told", a.p.rank, f.Rank, int(f.Seq))
	switch m := a.member(c.Group); {
	case m != nil && !m.closed:
		m.Fail(f)
	case m == nil && !slices.ContainsFunc(a.losses, func(x loss) bool { return x.failure(a.j.groups[c.Group]) != nil }):
		a.early[c.Group] = f
	}
}

// hear passes on another rank's position in a group.
func (a *participant) hear(x *overlay.Message) {
	if m := a.member(x.Group); m != nil && !m.closed {
		m.CheckPosition(slices.Index(m.g.ranks, x.Rank), network.Position(x.Where))
	}
}

// member returns the process's engine in a group, or nil if it has none yet.
func (a *participant) member(group string) *member {
	if g := a.j.groups[group]; g != nil {
		return g.members[slices.Index(g.ranks, a.rank)]
	}
	return nil
}

// Lost returns the ranks that are known to be lost.
func (a *participant) Lost() (list []int) {
	for _, x := range a.losses {
		list = append(list, x.ranks...)
	}
	slices.Sort(list)
	return list
}

// Left returns the ranks that are known to have left the job.
func (a *participant) Left() []int { return slices.Sorted(maps.Keys(a.departed)) }

// Hasten makes the process leave without waiting for the other ranks.
func (a *participant) Hasten() { a.leaveAtOnce = true }

// A loss is a set of lost ranks of one notification.
type loss struct {
	ranks  []int
	reason engine.Loss
}

// failure returns the failure of a group that has lost ranks, or nil if none of its
// ranks are lost.
func (x *loss) failure(g *group) *engine.Failure {
	var list []int
	for i, r := range g.ranks {
		if slices.Contains(x.ranks, r) {
			list = append(list, i)
		}
	}
	if list == nil {
		return nil
	}
	return &engine.Failure{
		Kind: engine.ErrRankLost, Rank: list[0], Lost: list, Told: true,
		Facts: engine.Facts{Event: engine.RanksLost, Loss: x.reason},
	}
}
