package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tutti-go/tutti"
)

const (
	smallBytes = 8
	largeBytes = 1 << 20
	linkBudget = 30 * time.Millisecond // for each of three measurements: round trip, and each direction
	// remeasurements is how often a slow link is measured again. A busy machine
	// makes some links slow for a moment.
	remeasurements = 3
)

// pairs measures every two ranks, in both directions, while the others wait, and returns
// descriptions of outliers, the same on all ranks. It replaces the runner's plan and memory, so it
// is the last measurement of a run. After an error on one rank, the others wait until the Comm is
// aborted.
func (r *runner) pairs(ctx context.Context, start *Start) ([]string, error) {
	hosts := start.Hosts
	n := r.comm.Size()
	if n < 2 {
		return nil, nil
	}
	if err := r.release(); err != nil {
		return nil, err
	}
	s := &spec{op: opNamed("broadcast"), dtype: tutti.Uint8Type, elems: largeBytes}
	one := *r.plan
	one.Batch, one.Ahead = 1, 1
	r.plan = &one
	if err := r.allocate(ctx, s, []spec{*s}); err != nil {
		return nil, err
	}
	// Hosts may have different numbers of cores; all ranks must decide the same.
	full := int32(0)
	if start.ranksOnHost() > start.Cores {
		full = 1
	}
	full, err := tutti.AllReduceValue(ctx, r.comm, full, tutti.Max)
	if err != nil {
		return nil, err
	}
	crowded := full == 1
	links := make(map[[2]int]Link)
	for round := range 1 + remeasurements {
		slow := slowLinks(sortedLinks(links), crowded)
		wanted := func(a, b int) bool {
			return round == 0 || slices.ContainsFunc(slow, func(l slowLink) bool { return l.From == a && l.To == b || l.From == b && l.To == a })
		}
		if err := r.measurePairs(ctx, hosts, wanted, links); err != nil {
			return nil, err
		}
	}
	all := sortedLinks(links)
	for i := range all {
		if err := r.emitEvent(Event{Link: &all[i]}); err != nil {
			return nil, err
		}
	}
	return Outliers(all, n, crowded), nil
}

// sortedLinks returns the links by their ranks.
func sortedLinks(links map[[2]int]Link) []Link {
	list := slices.Collect(maps.Values(links))
	slices.SortFunc(list, func(a, b Link) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return list
}

// measurePairs measures the wanted pairs, and keeps the better result of each link.
// All ranks have the same links.
func (r *runner) measurePairs(ctx context.Context, hosts []int, wanted func(a, b int) bool, links map[[2]int]Link) error {
	n := r.comm.Size()
	rounds := n - 1 + n%2
	for round := range rounds {
		any := false
		for low := range n {
			high := partner(low, round, n)
			any = any || high > low && wanted(low, high)
		}
		if !any {
			continue
		}
		if err := r.emitEvent(Event{Step: &Step{What: "pairs of ranks", Done: round, Of: rounds}}); err != nil {
			return err
		}
		list, err := r.round(ctx, round, hosts, wanted)
		if err != nil {
			return err
		}
		for _, l := range list {
			if old, ok := links[[2]int{l.From, l.To}]; ok {
				if old.Small.P50 < l.Small.P50 {
					l.Small = old.Small
				}
				if old.Large.P50 < l.Large.P50 {
					l.Large = old.Large
				}
			}
			links[[2]int{l.From, l.To}] = l
		}
	}
	return nil
}

// partner returns a rank's partner in a round of a round-robin schedule in which
// all ranks are paired once, or the rank itself if it has none.
func partner(rank, round, ranks int) int {
	even := ranks + ranks%2
	last := even - 1
	var other int
	switch rank {
	case last:
		// The rank with a fixed place is paired with the rank that would be paired
		// with itself.
		other = round * (even / 2) % last
	default:
		other = ((round-rank)%last + last) % last
		if other == rank {
			other = last
		}
	}
	if other >= ranks {
		return rank
	}
	return other
}

// round measures disjoint pairs, one after the other. All ranks return the links. Each pair has a
// Comm of its own, which round closes unless an operation fails.
func (r *runner) round(ctx context.Context, round int, hosts []int, wanted func(a, b int) bool) ([]Link, error) {
	c := r.comm
	me, n := c.Rank(), c.Size()
	other := partner(me, round, n)
	pair, err := c.Split(ctx, min(me, other), me)
	if err != nil {
		return nil, err
	}
	// Three numbers for each pair, in nanoseconds: round trip, to the higher rank,
	// to the lower rank.
	found := make([]float64, 3*n)
	for low := range n {
		high := partner(low, round, n)
		if high <= low || !wanted(low, high) {
			continue
		}
		if me == low || me == high {
			three, err := r.pair(ctx, pair)
			if err != nil {
				return nil, err
			}
			copy(found[3*low:], three)
		}
		if err := c.Barrier(ctx); err != nil {
			return nil, err
		}
	}
	if err := pair.Close(); err != nil {
		return nil, err
	}
	// Both ranks of a pair have measured; the larger value counts.
	if err := c.AllReduce(ctx, tutti.Of(found), tutti.Max); err != nil {
		return nil, err
	}
	var links []Link
	for low := range n {
		if high := partner(low, round, n); high > low && wanted(low, high) {
			remote := hosts[low] != hosts[high]
			links = append(links,
				r.link(low, high, remote, found[3*low]/2, found[3*low+1]),
				r.link(high, low, remote, found[3*low]/2, found[3*low+2]))
		}
	}
	return links, nil
}

func (r *runner) link(from, to int, remote bool, small, large float64) Link {
	result := func(bytes int, ns float64) Result {
		x := Result{
			Op: fmt.Sprintf("pair %d>%d", from, to), Engine: r.engine, Ranks: 2, Bytes: bytes, DType: "uint8", Reduce: none,
			Iters: 1, P50: ns / 1e3, P99: ns / 1e3, Min: ns / 1e3,
		}
		x.rates(opNamed("broadcast"))
		return x
	}
	return Link{From: from, To: to, Remote: remote, Small: result(smallBytes, small), Large: result(largeBytes, large)}
}

// pair measures one pair: the mean time of a round trip of a small message, and of
// a large message in each direction followed by a small answer. For a rank that is
// stopped from time to time, for example by a quota of its control group, the mean
// is meaningful and the median is not.
func (r *runner) pair(ctx context.Context, c *tutti.Comm) ([]float64, error) {
	m := r.memory[0]
	small, large := m.Buf.Slice(0, smallBytes), m.Buf.Slice(0, largeBytes)
	var three []float64
	for _, way := range []struct {
		there, back         tutti.Buffer
		thereRoot, backRoot int
	}{{small, small, 0, 1}, {large, small, 0, 1}, {large, small, 1, 0}} {
		var total time.Duration
		begin, n := time.Now(), 0
		for i := 0; ; i++ {
			now := time.Now()
			r.delay()
			if err := c.Broadcast(ctx, way.there, way.thereRoot); err != nil {
				return nil, err
			}
			if err := c.Broadcast(ctx, way.back, way.backRoot); err != nil {
				return nil, err
			}
			if i > 0 { // the first message makes connections
				total += time.Since(now)
				n++
			}
			if i%8 != minIters {
				continue
			}
			end := []uint8{0}
			if time.Since(begin) > linkBudget {
				end[0] = 1
			}
			if err := c.Broadcast(ctx, tutti.Of(end), 0); err != nil {
				return nil, err
			}
			if end[0] == 1 {
				break
			}
		}
		three = append(three, float64(total)/float64(n))
	}
	// The time of the small answer is subtracted. At least half of the time
	// remains, however slow the small message was.
	for i := range three[1:] {
		three[1+i] = max(three[1+i]-three[0]/2, three[1+i]/2, 1)
	}
	return three, nil
}
