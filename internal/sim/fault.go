package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/tutti-go/tutti/internal/overlay"
)

// A Kind is the kind of a fault.
type Kind uint8

// The kinds of faults. Package tuttitest exports them.
const (
	// Crash ends the rank's process. Its connections end; data that it has sent may
	// or may not arrive.
	Crash Kind = iota + 1
	// Vanish ends the rank's host. Its connections stay silent.
	Vanish
	// Stall stops the rank's process, for a time or forever. Its connections stay.
	Stall
	// Cut ends the data connections between the rank and the ranks in Peers.
	// Without Peers it ends the connection of the message that triggers it, which
	// may be to the store.
	Cut
	// Partition holds back everything between the rank with its Peers and the other
	// ranks, for a time or forever.
	Partition
	// OneWay does so only in the direction from the rank and its Peers to the other
	// ranks.
	OneWay

	// LastKind is the last of the kinds above: Options.Fill, Draw and Tally cover Crash to LastKind.
	LastKind = OneWay
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
	// Message triggers the fault when the rank sends its nth frame or message,
	// counted from zero.
	Message int
	// At, if not zero, triggers the fault at a virtual time instead.
	At time.Duration
	// For is the duration. Zero: forever.
	For time.Duration
	// Peers are the other ranks that the fault affects.
	Peers []int
}

// The errors of connections that end.
var (
	errReset  = errors.New("connection reset by peer")
	errCut    = errors.New("the connection was cut")
	errSilent = errors.New("its host does not answer")
)

// beforeSend counts a message that a process is about to send, and triggers faults.
// It reports whether the message is sent.
func (p *proc) beforeSend(to *proc) bool {
	n := p.sent
	p.sent++
	sent := true
	for i := range p.w.opt.Faults {
		f := &p.w.opt.Faults[i]
		if f.Rank == p.rank && f.At == 0 && f.Message == n && !p.w.fired[i] {
			p.w.fire(i, to)
			// A process may die just before or just after it sends.
			sent = !p.dead || p.w.net.rnd.IntN(2) == 0
		}
	}
	return sent
}

// fire makes fault i happen, unless its process is dead or has left. to is the
// receiver of the message that triggers it; nil for a fault at a virtual time. The
// caller is the sending task, or an event of the simulator.
func (w *World) fire(i int, to *proc) {
	f := &w.opt.Faults[i]
	p := w.procs[f.Rank]
	if p.dead || p.left {
		return // nothing can go wrong any more
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
			w.later(w.hostTimeout(), func() { w.end(q, p, errSilent, true) })
		}
		for _, d := range p.dials {
			w.later(w.hostTimeout(), func() { d.fail(overlay.CutOff) })
		}
	case Stall:
		p.stop(f.For == 0)
		if f.For != 0 {
			w.later(int64(f.For), p.resume)
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
		w.startPartition(f)
	}
}

// hostTimeout returns after how many nanoseconds one side of a connection detects that
// the other side does not answer.
func (w *World) hostTimeout() int64 {
	d := int64(w.opt.HostTimeout)
	return d + w.net.rnd.Int64N(d/8+1)
}

func (w *World) later(d int64, do func()) { w.s.at(w.s.now+d, do) }

// crash ends a process. Data that it has sent on a connection arrives completely,
// or up to the point where the connection's end overtakes it.
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
						d = max(d, c.frames.last-w.s.now, c.messages.last-w.s.now)
					}
				}
			}
		}
		w.later(d, func() { w.end(q, p, errReset, true) })
	}
}

// end ends the connections to a process, as another process sees it, in all jobs
// that they share.
func (w *World) end(at, of *proc, err error, control bool) {
	for _, a := range at.participants {
		if o := of.participantIn(a.j); o != nil {
			a.j.end(a, o, err, control)
		}
	}
}

// startPartition begins a partition. If it still exists after the HostTimeout,
// connections across it end.
func (w *World) startPartition(f *Fault) {
	// The store is on the side of the other ranks.
	s := &partition{side: make([]bool, len(w.procs)+1), oneWay: f.Kind == OneWay}
	if f.For != 0 {
		s.until = w.s.now + int64(f.For)
	}
	s.side[f.Rank] = true
	for _, r := range f.Peers {
		s.side[r] = true
	}
	w.net.addPartition(s)
	if f.For != 0 {
		w.later(int64(f.For), func() { w.net.heal(s) })
	}
	w.cutAcross(s, w.procs)
}

// cutAcross ends connections of these processes across a partition that still
// exists.
func (w *World) cutAcross(s *partition, procs []*proc) {
	if s.until != 0 && s.until-w.s.now < int64(w.opt.HostTimeout) {
		return
	}
	for i, p := range procs {
		for _, q := range procs[i+1:] {
			if s.side[p.rank] != s.side[q.rank] {
				w.later(w.hostTimeout(), func() { w.end(p, q, errSilent, true) })
				w.later(w.hostTimeout(), func() { w.end(q, p, errSilent, true) })
			}
		}
	}
}
