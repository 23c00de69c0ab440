package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A lane is a way from one process to another on which order is kept.
type lane struct {
	from, to *proc
	busy     int64 // when the last frame has left
	last     int64 // when it arrives
	held     []parcel
}

// A parcel is something on its way.
type parcel struct {
	bytes  int
	arrive func()
}

// links is how lanes behave, and what is wrong with them.
type links struct {
	s         *sched
	seed      uint64
	rnd       *rand.Rand
	latency   int64
	bandwidth float64 // bytes a nanosecond
	splits    []*split
	holding   []*lane // lanes that have something held
}

// A split is a partition.
type split struct {
	side   []bool // by rank
	oneWay bool   // only what comes from the side that is true is held
	until  int64  // when it is over; zero: never
}

func (p *split) blocks(from, to int) bool {
	return p.side[from] != p.side[to] && (!p.oneWay || p.side[from])
}

// blocked reports whether a partition lies between two processes.
func (l *links) blocked(from, to int) bool {
	for _, p := range l.splits {
		if p.blocks(from, to) {
			return true
		}
	}
	return false
}

// delay is how long something is on its way: the pair's own latency, from half
// to one and a half of the usual, some jitter, and now and then much more.
func (l *links) delay(from, to int) int64 {
	if from == to {
		return 0
	}
	h := l.seed ^ uint64(min(from, to))<<32 ^ uint64(max(from, to))
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	d := l.latency/2 + int64(h>>1%uint64(l.latency+1))
	d += l.rnd.Int64N(d/4 + 1)
	if l.rnd.IntN(hiccup) == 0 {
		d += l.rnd.Int64N(50 * l.latency)
	}
	return d
}

// hiccup is how seldom a frame is much later than others.
const hiccup = 200

// send puts a parcel on a lane.
func (l *links) send(n *lane, bytes int, arrive func()) {
	if l.blocked(n.from.rank, n.to.rank) {
		if len(n.held) == 0 {
			l.holding = append(l.holding, n)
		}
		n.held = append(n.held, parcel{bytes, arrive})
		return
	}
	n.busy = max(l.s.now, n.busy) + int64(float64(bytes)/l.bandwidth)
	n.last = max(n.busy+l.delay(n.from.rank, n.to.rank), n.last)
	l.s.at(n.last, func() {
		if !n.to.dead {
			arrive()
		}
	})
}

// part begins a partition.
func (l *links) part(p *split) { l.splits = append(l.splits, p) }

// heal ends it: what it held back goes on.
func (l *links) heal(p *split) {
	i := slices.Index(l.splits, p)
	if i < 0 {
		return
	}
	l.splits = slices.Delete(l.splits, i, i+1)
	holding := l.holding
	l.holding = nil
	for _, n := range holding {
		held := n.held
		n.held = nil
		for _, x := range held {
			l.send(n, x.bytes, x.arrive)
		}
	}
}

const (
	defaultLatency   = 20 * time.Microsecond
	defaultBandwidth = 12.5 // 100 Gbit/s
)
