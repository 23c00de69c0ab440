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

// The times of package watch: see there.
const (
	connectTime = time.Second
	dialTime    = time.Minute
	leaveTime   = 1500 * time.Millisecond
	leavePace   = 2 * time.Millisecond
)

// A link is a control connection between two posts of a job. Side 0 has dialed.
type link struct {
	ends  [2]*post
	lanes [2]lane // by the side that sends
	shut  [2]bool // this side takes nothing more from it
}

func newLink(from, to *post) *link {
	return &link{
		ends: [2]*post{from, to}, lanes: [2]lane{{from: from.p, to: to.p}, {from: to.p, to: from.p}},
	}
}

// side is which end of the link a post is.
func (l *link) side(a *post) int {
	if l.ends[0] == a {
		return 0
	}
	return 1
}

// send has do called at the other end of the link, after all that was sent on it before, if that
// end still reads then.
func (l *link) send(a *post, do func(to *post)) {
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

func (a *post) attach(rank int, l *link) { a.links[rank] = append(a.links[rank], l) }

func (a *post) detach(rank int, l *link) {
	a.links[rank] = slices.DeleteFunc(a.links[rank], func(o *link) bool { return o == l })
}

// open starts the Node with the links of Join.
func (a *post) open() {
	a.node = overlay.New(a.rank, len(a.j.posts), a.j.w.opt.Silence)
	a.node.Begin()
	if a.rank != 0 {
		l := newLink(a, a.j.hub())
		a.attach(0, l)
		a.j.hub().attach(a.rank, l)
	}
}

// step has the Node take something, now or when the process runs again, and carries out its actions.
func (a *post) step(do func(now time.Time)) {
	a.p.receive(func() {
		if a.closed || a.node == nil {
			return
		}
		do(a.p.Now())
		a.perform()
	})
}

// perform carries out the Node's actions in their order. An action can pass something to the Node;
// the actions that follow from that come after the others.
func (a *post) perform() {
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
	if a.leaving && (a.hurried || a.node.Gone()) {
		a.close()
		return
	}
	a.arm()
}

func (a *post) carryOut(x *overlay.Action) {
	switch x.Do {
	case overlay.Send:
		a.send(x.Rank, x.Message)
	case overlay.Dial:
		a.dial(a.j.posts[x.Rank])
	case overlay.Unlink:
		a.drop(x.Rank)
	case overlay.Lose:
		a.lose(x.Ranks, x.Reason)
	case overlay.Depart:
		a.departed[x.Rank] = true
	case overlay.Fail:
		a.fail(x.Cause)
	case overlay.Hear:
		a.hear(x.Message)
	}
}

// arm schedules the Node's next tick.
func (a *post) arm() {
	w := a.j.w
	t, due := a.node.Next()
	at := int64(t.Sub(start))
	if a.leaving {
		at, due = w.s.now+int64(leavePace), true
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
func (a *post) send(rank int, m *overlay.Message) {
	links := a.links[rank]
	if len(links) == 0 {
		return
	}
	if m.Kind != overlay.Ask && m.Kind != overlay.Here {
		a.j.w.s.log.note(a.j.w.s.now, "control", a.p.rank, a.j.posts[rank].p.rank, int(m.Kind))
	}
	links[len(links)-1].send(a, func(to *post) {
		to.step(func(now time.Time) { to.node.Receive(now, a.rank, m) })
	})
}

// drop uses a link that this rank has made no more. What the other side has sent on it before it
// knows of that is still taken.
func (a *post) drop(rank int) {
	i := slices.IndexFunc(a.links[rank], func(l *link) bool { return l.side(a) == 0 })
	l := a.links[rank][i]
	a.detach(rank, l)
	l.send(a, func(to *post) {
		l.shut[1] = true
		if slices.Contains(to.links[a.rank], l) {
			to.detach(a.rank, l)
			to.step(func(now time.Time) { to.node.LinkDropped(now, a.rank, false) })
		}
	})
}

// end is the end of a link without a goodbye, as one side sees it.
func (l *link) end(at *post, reason engine.Loss) {
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

// A dial is one that is under way.
type dial struct {
	from, to *post
	over     bool
}

// fail ends the dial, unless it has a result.
func (d *dial) fail(why overlay.DialResult) {
	if !d.over {
		d.over = true
		d.from.step(func(now time.Time) { d.from.node.DialFailed(now, d.to.rank, why) })
	}
}

// dial connects to another post.
func (a *post) dial(to *post) {
	w, d := a.j.w, &dial{from: a, to: to}
	w.later(w.net.delay(a.p.rank, to.p.rank), func() {
		switch {
		case a.p.dead || a.closed:
		case w.net.blocked(a.p.rank, to.p.rank) || w.net.blocked(to.p.rank, a.p.rank) || to.p.dead && !w.reset[to.p.rank]:
			w.later(int64(connectTime), func() { d.fail(overlay.CutOff) })
		case to.p.dead || to.closed:
			w.later(w.net.delay(to.p.rank, a.p.rank), func() { d.fail(overlay.Refused) })
		case to.p.frozen:
			to.p.dials = append(to.p.dials, d)
			to.p.receive(d.accept)
			w.later(int64(dialTime), func() { d.fail(overlay.Unanswered) })
		default:
			d.accept()
		}
	})
}

// accept is the answer of the process that was dialed. It travels to the other side before all
// messages on the link.
func (d *dial) accept() {
	a, to, w := d.from, d.to, d.from.j.w
	switch {
	case d.over || a.p.dead || a.closed:
		return
	case to.closed:
		w.later(w.net.delay(to.p.rank, a.p.rank), func() { d.fail(overlay.Refused) })
		return
	}
	l := newLink(a, to)
	to.attach(a.rank, l)
	w.net.send(&l.lanes[1], 0, func() { a.p.receive(func() { d.up(l) }) })
	w.later(int64(w.opt.Silence), func() { d.fail(overlay.CutOff) })
	to.step(func(now time.Time) { to.node.LinkUp(now, a.rank, false) })
}

// up is the new link at the side that has dialed.
func (d *dial) up(l *link) {
	a, to, w := d.from, d.to, d.from.j.w
	if d.over || a.closed {
		l.shut[0] = true
		w.later(w.net.delay(a.p.rank, to.p.rank), func() { l.end(to, engine.Disconnected) })
		return
	}
	d.over = true
	a.attach(to.rank, l)
	a.step(func(now time.Time) { a.node.LinkUp(now, to.rank, true) })
	switch { // the other side ended when this one did not know of the link
	case to.p.dead && !w.reset[to.p.rank]:
		w.later(w.silence(), func() { l.end(a, overlay.Silent) })
	case to.p.dead || l.shut[1]:
		w.later(w.net.delay(to.p.rank, a.p.rank), func() { l.end(a, engine.Disconnected) })
	}
}

// hangUp is the end of the control connections with another rank, as one side sees it.
func (a *post) hangUp(of *post, err error) {
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

// leave says goodbye to the other ranks. The process does not wait for them: the post is closed when
// they know, or after leaveTime.
func (a *post) leave() {
	if a.leaving || a.closed || a.node == nil {
		return
	}
	a.leaving = true
	a.j.w.later(int64(leaveTime), func() { a.p.receive(a.close) })
	a.step(a.node.Leave)
}

// close ends all links. Nothing listens for others any more.
func (a *post) close() {
	if a.closed || a.p.dead {
		return
	}
	a.closed = true
	for r := range a.j.posts {
		for _, l := range a.links[r] {
			l.shut[l.side(a)] = true
			l.send(a, func(to *post) { l.end(to, engine.Disconnected) })
		}
	}
	clear(a.links)
}

// lose notifies the process's groups that ranks are lost.
func (a *post) lose(ranks []int, reason engine.Loss) {
	for _, r := range ranks {
		a.j.w.s.log.note(a.j.w.s.now, "lost", a.p.rank, a.j.posts[r].p.rank, 0)
	}
	x := loss{ranks, reason}
	a.losses = append(a.losses, x)
	for _, m := range a.members {
		m.lose(&x)
	}
}

// fail notifies the process's side of a group of its first cause, also if it is made later. The rank
// that reported the cause knows more of it than has travelled.
func (a *post) fail(c *overlay.Cause) {
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

// hear takes another rank's position in a group.
func (a *post) hear(x *overlay.Message) {
	if m := a.member(x.Group); m != nil && !m.closed {
		m.Heard(slices.Index(m.g.ranks, x.Rank), network.Position(x.Where))
	}
}

// member is the process's side of a group; nil: it has none yet.
func (a *post) member(group string) *member {
	if g := a.j.groups[group]; g != nil {
		return g.members[slices.Index(g.ranks, a.rank)]
	}
	return nil
}

// Lost returns the ranks that are known to be lost.
func (a *post) Lost() (list []int) {
	for _, x := range a.losses {
		list = append(list, x.ranks...)
	}
	slices.Sort(list)
	return list
}

// Left returns the ranks that are known to have left the job.
func (a *post) Left() []int { return slices.Sorted(maps.Keys(a.departed)) }

// Hasten has the process leave without waiting for the other ranks.
func (a *post) Hasten() { a.hurried = true }

// A loss is what a post was notified of at once.
type loss struct {
	ranks  []int
	reason engine.Loss
}

// failure is that of a group that has lost ranks; nil if none was in it.
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
