package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/tutti-go/tutti/internal/overlay"
)

// A Kind is what a fault does.
type Kind uint8

// The kinds of fault.
const (
	// Crash ends the rank's process: its connections end, what it has sent may
	// arrive or not.
	Crash Kind = iota + 1
	// Vanish ends the rank's host: its connections just stay silent.
	Vanish
	// Stall stops the rank's process, for a time or for good. Its connections
	// stay.
	Stall
	// Cut ends the data connections between the rank and another: those of
	// Peers, or else the one that a message was for, which may be the store's.
	Cut
	// Partition holds back all that goes between the rank with its Peers and
	// the others, for a time or for good.
	Partition
	// OneWay does so only with what goes from the rank and its Peers to the
	// others.
	OneWay
)

func (k Kind) String() string {
	names := [...]string{Crash: "crash", Vanish: "vanish", Stall: "stall", Cut: "cut", Partition: "partition", OneWay: "one-way partition"}
	if k > 0 && int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("fault %d", uint8(k))
}

// A Fault is something that goes wrong, once.
type Fault struct {
	Kind Kind
	Rank int
	// Message is when: when the rank sends its nth frame or message, from zero.
	Message int
	// At, if it is not zero, is a time in place of that.
	At time.Duration
	// For is how long it lasts. Zero: for good.
	For time.Duration
	// Peers are the other ranks that it is about.
	Peers []int
}

// errReset and the others are what connections say when they end.
var (
	errReset  = errors.New("connection reset by peer")
	errCut    = errors.New("the connection was cut")
	errSilent = errors.New("its host does not answer")
)

// leaving counts a message that a process is about to send, and lets faults
// happen. It reports whether the message is sent.
func (p *proc) leaving(to *proc) bool {
	n := p.sent
	p.sent++
	sent := true
	for i := range p.w.opt.Faults {
		f := &p.w.opt.Faults[i]
		if f.Rank == p.rank && f.At == 0 && f.Message == n && !p.w.fired[i] {
			p.w.fire(i, to)
			// Whoever dies may do so just before or just after.
			sent = !p.dead || p.w.net.rnd.IntN(2) == 0
		}
	}
	return sent
}

// fire has a fault happen.
func (w *World) fire(i int, to *proc) {
	f := &w.opt.Faults[i]
	p := w.procs[f.Rank]
	if p.dead || p.left {
		return // there is nothing that could go wrong any more
	}
	w.fired[i], w.when[i] = true, time.Duration(w.s.now)
	for r, p := range w.procs {
		w.then[r] = p.sent
	}
	w.s.log.note(w.s.now, f.Kind.String(), f.Rank, f.Message, int(f.For))
	switch f.Kind {
	case Crash:
		w.crash(p)
	case Vanish:
		p.die()
		for _, q := range w.procs {
			w.later(w.silence(), func() { w.end(q, p, errSilent, true) })
		}
		for _, d := range p.dials {
			w.later(w.silence(), func() { d.fail(overlay.CutOff) })
		}
	case Stall:
		p.freeze(f.For == 0)
		if f.For != 0 {
			w.later(int64(f.For), p.thaw)
		}
	case Cut:
		peers := f.Peers
		if len(peers) == 0 && to == w.store.at {
			p.store.broken = true
			return
		}
		if len(peers) == 0 && to != nil {
			peers = []int{to.rank}
		}
		for _, r := range peers {
			q := w.procs[r]
			w.later(w.net.delay(r, p.rank), func() { w.end(q, p, errCut, false) })
			w.later(w.net.delay(p.rank, r), func() { w.end(p, q, errCut, false) })
		}
	case Partition, OneWay:
		w.part(f)
	}
}

// silence is after how long one side of a connection notices that the other does
// not answer.
func (w *World) silence() int64 {
	d := int64(w.opt.Silence)
	return d + w.net.rnd.Int64N(d/8+1)
}

func (w *World) later(d int64, do func()) { w.s.at(w.s.now+d, do) }

// crash ends a process. What it has sent on a connection arrives whole, or up to
// where the connection's end overtakes it.
func (w *World) crash(p *proc) {
	p.die()
	w.reset[p.rank] = true
	for _, d := range p.dials {
		w.later(w.net.delay(p.rank, d.from.p.rank), func() { d.fail(overlay.Refused) })
	}
	for _, q := range w.procs {
		if q == p {
			continue
		}
		d := w.net.delay(p.rank, q.rank)
		if w.net.rnd.IntN(2) == 0 {
			for _, m := range p.members {
				for r, o := range m.g.meshes {
					if c := m.g.meshes[m.Rank()].peers[r]; o.p == q && c != nil {
						d = max(d, c.frames.last-w.s.now, c.mail.last-w.s.now)
					}
				}
			}
		}
		w.later(d, func() { w.end(q, p, errReset, true) })
	}
}

// end ends the connections to a process, as another sees it, in all jobs that
// they share.
func (w *World) end(at, of *proc, err error, control bool) {
	for _, a := range at.posts {
		if o := of.postIn(a.j); o != nil {
			a.j.end(a, o, err, control)
		}
	}
}

// part begins a partition. If it is still there after the time of silence,
// connections across it end.
func (w *World) part(f *Fault) {
	// The store is on the side of the others.
	s := &split{side: make([]bool, len(w.procs)+1), oneWay: f.Kind == OneWay}
	if f.For != 0 {
		s.until = w.s.now + int64(f.For)
	}
	s.side[f.Rank] = true
	for _, r := range f.Peers {
		s.side[r] = true
	}
	w.net.part(s)
	if f.For != 0 {
		w.later(int64(f.For), func() { w.net.heal(s) })
	}
	w.severe(s, w.procs)
}

// severe ends connections of these processes across a partition, if it lasts.
func (w *World) severe(s *split, procs []*proc) {
	if s.until != 0 && s.until-w.s.now < int64(w.opt.Silence) {
		return
	}
	for i, p := range procs {
		for _, q := range procs[i+1:] {
			if s.side[p.rank] != s.side[q.rank] {
				w.later(w.silence(), func() { w.end(p, q, errSilent, true) })
				w.later(w.silence(), func() { w.end(q, p, errSilent, true) })
			}
		}
	}
}
