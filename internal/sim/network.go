package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A lane is a connection from one process to another, in order.
type lane struct {
	from, to *proc
	busy     int64 // virtual time when the last frame has left
	last     int64 // virtual time when the last frame arrives
	held     []packet
}

// A packet is data in transit.
type packet struct {
	bytes  int
	arrive func()
}

// simNetwork is the behaviour of all lanes, and the current partitions.
type simNetwork struct {
	s          *sched
	seed       uint64
	rnd        *rand.Rand
	latency    int64
	bandwidth  float64 // bytes per nanosecond
	partitions []*partition
	holding    []*lane // lanes with packets that a partition holds back
}

// A partition holds back packets between two sets of processes.
type partition struct {
	side   []bool // by rank
	oneWay bool   // only packets from the side with true are held back
	until  int64  // virtual time of its end; zero: never
}

func (p *partition) blocks(from, to int) bool {
	return p.side[from] != p.side[to] && (!p.oneWay || p.side[from])
}

// blocked reports whether a partition lies between two processes.
func (l *simNetwork) blocked(from, to int) bool {
	for _, p := range l.partitions {
		if p.blocks(from, to) {
			return true
		}
	}
	return false
}

// delay returns the time in transit: a latency that is fixed per pair, from half to
// one and a half of the usual one, some jitter, and rarely much more.
func (l *simNetwork) delay(from, to int) int64 {
	if from == to {
		return 0
	}
	h := l.seed ^ uint64(min(from, to))<<32 ^ uint64(max(from, to))
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	d := l.latency/2 + int64(h>>1%uint64(l.latency+1))
	d += l.rnd.Int64N(d/4 + 1)
	if l.rnd.IntN(spikeInterval) == 0 {
		d += l.rnd.Int64N(50 * l.latency)
	}
	return d
}

// spikeInterval is how many packets there are per packet with a much larger delay,
// on average.
const spikeInterval = 200

// send puts a packet on a lane. arrive is called in an event, in the order of the
// lane, unless the receiver is dead then. A packet that a partition blocks waits
// for heal.
func (l *simNetwork) send(n *lane, bytes int, arrive func()) {
	if l.blocked(n.from.rank, n.to.rank) {
		if len(n.held) == 0 {
			l.holding = append(l.holding, n)
		}
		n.held = append(n.held, packet{bytes, arrive})
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

// addPartition begins a partition.
func (l *simNetwork) addPartition(p *partition) { l.partitions = append(l.partitions, p) }

// heal ends a partition. The packets that it has held back continue.
func (l *simNetwork) heal(p *partition) {
	i := slices.Index(l.partitions, p)
	if i < 0 {
		return
	}
	l.partitions = slices.Delete(l.partitions, i, i+1)
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
