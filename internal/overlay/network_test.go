package overlay

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

const (
	testHostTimeout = 3 * time.Second
	connectTime     = 3 * time.Second // bounds a dial of a silent host; longer than in package tcp, where one address takes 1 s
)

// A network connects Nodes in virtual time. Only the goroutine of its test uses it: run calls all
// events.
type network struct {
	rnd    *rand.Rand
	now    time.Time
	events events
	order  uint64
	procs  []*process
	hosts  []int
	jitter time.Duration // the upper bound of latencies
	bugs   bugs
	data   bool // the ranks have data connections and report their ends; see endData
	// Counters of TestMany.
	messages []int
}

// bugs break a rule each, so that a test can show that scenarios detect it.
type bugs struct {
	actFirst  bool // act on a fact before forwarding it
	noState   bool // begin a new link without all facts
	noSuspect bool // never suspect a rank that does not answer
	noRedial  bool // take the end of a link for a loss
	noStand   bool // let only the coordinator decide
	leaveFast bool // exit without an acknowledgement of the goodbye
	unordered bool // decide that a rank is lost before the losses that it knew of
}

// A process runs a Node.
type process struct {
	w              *network
	rank           int
	node           *Node
	dead           bool      // the process has exited or was killed
	died           time.Time // when it ended without a goodbye; zero: it did not
	stopped        bool
	silent         bool // its host does not answer
	leaving        bool
	gone           bool                  // it has left in good order
	alone          bool                  // when it left, no other rank ran, or none answered in time
	queued         []func()              // inputs that arrived while it was stopped
	conns          map[int][]*connection // by peer, the newest last
	armed          time.Time             // when the next tick is scheduled
	dials          []*pendingDial
	exitsOnFailure bool              // it exits without a goodbye when it is notified of a loss or a failure
	exited         string            // the group whose failure made it exit
	unknown        bool              // it has left, and was taken for lost when no running rank knew
	lost           []notice          // losses in the order of their notification
	failed         map[string]notice // causes by group
	heard          []string          // positions
	first          *first            // the failure of the group of all ranks that it was notified of first
	because        *first            // the failure because of which it exited
	noticed        bool              // it has reported the end of a data connection
	batches        int
	left           map[int]bool // departures
}

// A notice is one notification of a rank.
type notice struct {
	rank       int
	cause      *Cause
	reason     engine.Loss
	at         time.Time
	batch      int  // losses notified at once have the same number
	unknowable bool // the rank had left, and no rank that knew could forward it
}

// A first is what a rank learned first of the failure of the group of all ranks.
type first struct {
	ranks  []int // the lost ranks that it names; empty: another failure
	reason engine.Loss
}

// A connection is a link between two processes. Side 0 dialed it.
type connection struct {
	ends [2]*process
	last [2]time.Time // when the last message for this side arrives
	shut [2]bool      // this side does not read any more
	drop [2]bool      // this side does not send any more
}

type event struct {
	at    time.Time
	order uint64
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// newNetwork makes a job with the links of Join. hosts are the host numbers by rank. Nothing
// happens before run.
func newNetwork(seed uint64, size int, hosts []int) *network {
	w := &network{
		rnd: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0), hosts: hosts, jitter: 2 * time.Millisecond,
		messages: make([]int, size),
	}
	for r := range size {
		p := &process{
			w: w, rank: r, node: New(r, size, testHostTimeout), conns: make(map[int][]*connection),
			failed: make(map[string]notice), left: make(map[int]bool),
		}
		p.node.Hosts(hosts)
		p.node.Begin()
		w.procs = append(w.procs, p)
	}
	for _, p := range w.procs[1:] {
		w.connect(p, w.procs[0])
	}
	for _, p := range w.procs {
		w.after(w.delay(), func() { p.input(func() { p.node.Reach(w.now) }) })
	}
	return w
}

func (w *network) delay() time.Duration { return time.Duration(w.rnd.Int64N(int64(w.jitter)) + 1) }

func (w *network) at(t time.Time, do func()) {
	if t.Before(w.now) {
		t = w.now // for a process that was stopped
	}
	w.order++
	heap.Push(&w.events, event{t, w.order, do})
}

func (w *network) after(d time.Duration, do func()) { w.at(w.now.Add(d), do) }

// run processes events until a time.
func (w *network) run(until time.Time) {
	for len(w.events) > 0 && !w.events[0].at.After(until) {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	w.now = until
}

func (w *network) connect(from, to *process) *connection {
	c := &connection{ends: [2]*process{from, to}}
	from.conns[to.rank] = append(from.conns[to.rank], c)
	to.conns[from.rank] = append(to.conns[from.rank], c)
	return c
}

func (c *connection) side(p *process) int {
	if c.ends[0] == p {
		return 0
	}
	return 1
}

// deliver makes an event arrive at the other side of a connection, in order.
func (c *connection) deliver(from *process, do func(to *process)) {
	w, i := from.w, 1-c.side(from)
	to := c.ends[i]
	t := w.now.Add(w.delay())
	if t.Before(c.last[i]) {
		t = c.last[i]
	}
	c.last[i] = t
	w.at(t, func() {
		if !c.shut[i] && !from.silent && !to.silent {
			to.receive(func() {
				if !c.shut[i] {
					do(to)
				}
			})
		}
	})
}

// receive passes an event to a process, now or when it is resumed.
func (p *process) receive(do func()) {
	switch {
	case p.dead:
	case p.stopped:
		p.queued = append(p.queued, do)
	default:
		do()
	}
}

// input passes an input to the Node and performs its actions.
func (p *process) input(do func()) {
	p.receive(func() {
		do()
		p.perform()
		p.arm()
	})
}

// arm schedules the Node's next tick, unless an earlier one is scheduled.
func (p *process) arm() {
	t, ok := p.node.Next()
	if p.leaving {
		t, ok = p.w.now.Add(2*time.Millisecond), true
	}
	if !ok || p.dead || !p.armed.IsZero() && !t.Before(p.armed) {
		return
	}
	p.armed = t
	p.w.at(t, func() {
		if !p.armed.Equal(t) {
			return
		}
		p.armed = time.Time{}
		p.input(func() {
			if p.w.bugs.noSuspect {
				for r := range p.node.peers {
					if p.node.peers[r].links > 0 {
						p.node.peers[r].askedAt = time.Time{}
					}
				}
			}
			if p.w.bugs.noStand {
				for _, r := range p.node.pending {
					r.since = p.w.now
				}
			}
			p.node.Tick(p.w.now)
		})
	})
}

// perform performs the Node's actions in order. It stops when the process ends, which an action may
// cause.
func (p *process) perform() {
	for list := p.node.Take(); len(list) > 0 && !p.dead; list = p.node.Take() {
		if p.w.bugs.actFirst {
			slices.SortStableFunc(list, func(a, b Action) int {
				first := func(a Action) int {
					if a.Do == Lose || a.Do == Fail {
						return 0
					}
					return 1
				}
				return first(a) - first(b)
			})
		}
		for _, a := range list {
			if p.dead {
				return
			}
			p.performOne(a)
		}
	}
}

// performOne performs one action on the network, or records a notification for the checks. A
// process with exitsOnFailure is killed at its first loss or failure.
func (p *process) performOne(a Action) {
	switch a.Do {
	case Send:
		p.send(a.Rank, a.Message)
	case Dial:
		p.dial(p.w.procs[a.Rank])
	case Unlink:
		conns := p.conns[a.Rank]
		i := slices.IndexFunc(conns, func(c *connection) bool { return c.ends[0] == p })
		c := conns[i]
		p.detach(a.Rank, c)
		c.drop[0] = true
		c.deliver(p, func(to *process) { to.dropped(p.rank, c) })
	case Lose:
		p.batches++
		for _, r := range a.Ranks {
			n := notice{rank: r, reason: a.Reason, at: p.w.now, batch: p.batches}
			n.unknowable = p.w.procs[r].unknown || p.w.procs[r].unknowable()
			p.w.procs[r].unknown = n.unknowable
			p.lost = append(p.lost, n)
		}
		f := &first{a.Ranks, a.Reason}
		p.fail(f)
		if p.exitsOnFailure && !p.leaving {
			p.because = f
			p.w.kill(p)
		}
	case Fail:
		if _, ok := p.failed[a.Cause.Group]; !ok {
			p.failed[a.Cause.Group] = notice{cause: a.Cause, at: p.w.now}
		}
		f := &first{ranks: a.Cause.Lost}
		if a.Cause.Group == jobGroup {
			p.fail(f)
		}
		if p.exitsOnFailure && !p.leaving {
			p.exited = a.Cause.Group
			if a.Cause.Group == jobGroup {
				p.because = f
			}
			p.w.kill(p)
		}
	case Depart:
		p.left[a.Rank] = true
	case NotifyPosition:
		p.heard = append(p.heard, fmt.Sprint(a.Rank, string(a.Message.Where)))
	}
}

func (p *process) send(to int, m *Message) {
	conns := p.conns[to]
	if len(conns) == 0 || m.Kind == State && p.w.bugs.noState {
		return
	}
	p.w.messages[p.rank]++
	c := conns[len(conns)-1]
	c.deliver(p, func(q *process) { q.input(func() { q.node.Receive(q.w.now, p.rank, m) }) })
}

func (p *process) detach(rank int, c *connection) {
	p.conns[rank] = slices.DeleteFunc(p.conns[rank], func(o *connection) bool { return o == c })
}

// dropped handles a Drop of the other side.
func (p *process) dropped(rank int, c *connection) {
	i := c.side(p)
	if !slices.Contains(p.conns[rank], c) {
		return
	}
	p.detach(rank, c)
	c.shut[i] = true
	c.deliver(p, func(*process) { c.shut[1-i] = true }) // the end of the connection
	p.input(func() { p.node.LinkDropped(p.w.now, rank, i == 0) })
}

// dial connects to another process. The Node learns the result by an event: a link, or DialFailed.
// A dial of a stopped process waits until that process is resumed, at most DialTime.
func (p *process) dial(q *process) {
	w := p.w
	failed := func(after time.Duration, why DialResult) {
		w.after(after, func() { p.input(func() { p.node.DialFailed(w.now, q.rank, why) }) })
	}
	w.after(w.delay(), func() {
		switch {
		case p.dead:
		case p.silent || q.silent:
			failed(connectTime, CutOff)
		case q.dead:
			failed(w.delay(), Refused)
		case q.stopped:
			d := &pendingDial{from: p, to: q}
			q.dials = append(q.dials, d)
			q.queued = append(q.queued, func() { d.end(func() { p.accepted(q) }) })
			w.after(DialTime, func() { d.fail(Unanswered) })
		default:
			p.accepted(q)
		}
	})
}

// A pendingDial waits for a stopped process.
type pendingDial struct {
	from, to *process
	over     bool
}

func (d *pendingDial) end(do func()) {
	if !d.over && !d.from.dead {
		do()
	}
	d.over = true
}

func (d *pendingDial) fail(why DialResult) {
	d.end(func() { d.from.input(func() { d.from.node.DialFailed(d.from.w.now, d.to.rank, why) }) })
}

// accepted handles a dial that the other process has answered. The other side has the link at once,
// and this side after a delay. If this process has exited by then, the link ends at the other side.
func (p *process) accepted(q *process) {
	w := p.w
	c := &connection{ends: [2]*process{p, q}}
	c.last[0] = w.now.Add(w.delay())
	q.conns[p.rank] = append(q.conns[p.rank], c)
	w.at(c.last[0], func() {
		if p.dead && !p.silent {
			c.shut[0] = true
			c.deliver(p, func(q *process) { q.ended(p.rank, c, "its connection has ended") })
			return
		}
		p.conns[q.rank] = append(p.conns[q.rank], c)
		p.input(func() { p.node.LinkUp(w.now, q.rank, true) })
		if p.silent || q.silent { // a host has become silent in the meantime
			w.after(testHostTimeout, func() {
				p.receive(func() { p.ended(q.rank, c, Silent) })
				q.receive(func() { q.ended(p.rank, c, Silent) })
			})
		}
	})
	q.input(func() { q.node.LinkUp(w.now, p.rank, false) })
}

// close closes all connections of a process that has ended. The other sides notice after a delay,
// and dials that wait for the process are refused.
func (w *network) close(p *process) {
	p.dead = true
	conns := p.conns
	p.conns = nil
	for _, d := range p.dials {
		w.after(w.delay(), func() { d.fail(Refused) })
	}
	for r := range w.procs {
		for _, c := range conns[r] {
			i := c.side(p)
			c.shut[i] = true
			c.deliver(p, func(q *process) { q.ended(p.rank, c, "its connection has ended") })
		}
	}
}

// ended handles the end of a connection at one side. It ignores a connection that this side no
// longer uses.
func (p *process) ended(rank int, c *connection, reason engine.Loss) {
	i := c.side(p)
	if c.drop[i] || !slices.Contains(p.conns[rank], c) {
		c.shut[i] = true
		return
	}
	p.detach(rank, c)
	c.shut[i] = true
	p.input(func() {
		if p.w.bugs.noRedial && p.node.present(rank) && !p.leaving {
			p.node.lose(p.w.now, rank, reason)
		}
		p.node.LinkDown(p.w.now, rank, i == 0, reason)
	})
}

// kill ends a process without a goodbye.
func (w *network) kill(p *process) {
	if !p.dead {
		p.markDead()
		w.close(p)
		w.endData(p, w.delay)
	}
}

// jobGroup is the name of the group of all ranks.
const jobGroup = "job"

// endData ends the data connections of a process that has ended without a goodbye. About half of the
// other ranks use theirs, and report that the process is lost if the group of all ranks has not failed.
func (w *network) endData(p *process, delay func() time.Duration) {
	for _, q := range w.procs {
		if w.data && q != p && w.rnd.IntN(2) == 0 {
			w.after(delay(), func() { q.receive(func() { q.dataEnded(p) }) })
		}
	}
}

// dataEnded reports the end of a data connection. A rank that is not notified of the first cause
// keeps its own finding.
func (p *process) dataEnded(q *process) {
	if p.first != nil || p.noticed || p.leaving {
		return
	}
	p.noticed = true
	kind := engine.ErrRankLost
	if p.w.bugs.unordered {
		kind = engine.ErrAborted
	}
	c := &Cause{Group: jobGroup, From: p.rank, Kind: engine.KindName(kind), Lost: []int{q.rank}, Members: p.w.ranks()}
	p.input(func() { p.node.Report(p.w.now, c) })
	p.awaitDecision(reportSteps, &first{ranks: []int{q.rank}})
}

// awaitDecision ends this rank's wait for the decision on its own finding f. Time passes only while
// the process runs, as in package control.
func (p *process) awaitDecision(steps int, f *first) {
	if steps == 0 {
		p.fail(f)
		return
	}
	p.w.after(reportTime/reportSteps, func() { p.receive(func() { p.awaitDecision(steps-1, f) }) })
}

// How long a rank waits for the decision on its report.
const (
	reportTime  = time.Second
	reportSteps = 10
)

// ranks returns the members of the group of all ranks.
func (w *network) ranks() (list []int) {
	for r := range w.procs {
		list = append(list, r)
	}
	return list
}

// fail records the first failure of the group of all ranks.
func (p *process) fail(f *first) {
	if p.first == nil {
		p.first = f
	}
}

// unknowable reports whether a process has left, and every rank that knew was killed or is stopped.
// A rank that knew and left in good order has forwarded the departure.
func (p *process) unknowable() bool {
	knew := false
	for _, q := range p.w.procs {
		if q.left[p.rank] {
			knew = true
			if q.gone || !q.dead && !q.stopped {
				return p.gone && p.alone
			}
		}
	}
	return p.gone && (knew || p.alone)
}

// markDead records that a process ends without a goodbye, or before its goodbye was acknowledged.
func (p *process) markDead() { p.died = p.w.now }

// cut ends one connection between two running processes.
func (w *network) cut(p, q *process) bool {
	if p.dead || q.dead || len(p.conns[q.rank]) == 0 || p.silent || q.silent {
		return false
	}
	c := p.conns[q.rank][0]
	for _, x := range c.ends {
		w.after(w.delay(), func() { x.receive(func() { x.ended(c.ends[1-c.side(x)].rank, c, "connection reset") }) })
	}
	return true
}

// silence ends a process whose host becomes silent. Its peers notice after testHostTimeout.
func (w *network) silence(p *process) {
	if p.dead {
		return
	}
	p.markDead()
	p.silent, p.dead = true, true
	for _, d := range p.dials {
		w.after(testHostTimeout, func() { d.fail(CutOff) })
	}
	for _, q := range w.procs {
		for _, c := range p.conns[q.rank] {
			w.after(testHostTimeout+time.Duration(w.rnd.Int64N(int64(testHostTimeout/8))), func() {
				q.receive(func() { q.ended(p.rank, c, Silent) })
			})
		}
	}
	w.endData(p, func() time.Duration { return testHostTimeout + time.Duration(w.rnd.Int64N(int64(testHostTimeout/8))) })
}

func (w *network) stop(p *process) {
	if !p.dead {
		p.stopped = true
	}
}

func (w *network) resume(p *process) {
	if p.dead || !p.stopped {
		return
	}
	p.stopped = false
	held := p.queued
	p.queued = nil
	for _, do := range held {
		p.receive(do)
	}
}

// leave lets a process say goodbye and exit, when its Node may exit or after LeaveTime.
func (w *network) leave(p *process) {
	p.receive(func() {
		if p.leaving {
			return
		}
		p.leaving = true
		begun := w.now
		p.input(func() { p.node.Leave(w.now) })
		var tryExit func()
		tryExit = func() {
			p.receive(func() {
				if p.node.MayExit() || w.now.Sub(begun) >= LeaveTime || w.bugs.leaveFast {
					p.gone = true
					p.alone = w.now.Sub(begun) >= LeaveTime || !slices.ContainsFunc(w.procs, func(q *process) bool { return q != p && !q.dead && !q.stopped })
					w.close(p)
					return
				}
				w.after(time.Millisecond, tryExit)
			})
		}
		tryExit()
	})
}

// report lets a process report a cause of a group's failure.
func (w *network) report(p *process, group, reason string) {
	p.input(func() {
		p.node.Report(w.now, &Cause{Group: group, From: p.rank, Facts: engine.Facts{Text: reason}, Kind: "aborted"})
	})
}
