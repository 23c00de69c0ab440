package sim

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/internal/race"
)

// Flags for a part of a long run: go test ./internal/sim -run TestSeeds -seeds
// 10000 -from 20000
var (
	seeds = flag.Int("seeds", 0, "how many seeds TestSeeds runs; zero: a usual number, or 100,000 if TUTTI_TEST_HEAVY is set")
	from  = flag.Uint64("from", 0, "the first seed")
	table = flag.String("record", "", "a file to which a row is added that says what TestSeeds did")
)

// TestSeeds runs random programs, first without and then with a fault. After each
// run it checks that nothing hangs, that every rank has the right result or an
// error, and that the errors name the fault.
func TestSeeds(t *testing.T) {
	n := *seeds
	switch {
	case n > 0:
	case proctest.Heavy(t):
		n = 100_000
	case testing.Short() || race.Enabled:
		n = 50
	default:
		n = 300
	}
	d := seedStats{Tally: Tally{First: *from, Seeds: n}}
	began := time.Now()
	for seed := *from; seed < *from+uint64(n); seed++ {
		if err := d.seed(seed); err != nil {
			t.Fatalf("seed %d: %v\nto repeat it: go test ./internal/sim -run 'TestSeeds$' -seeds 1 -from %d", seed, err, seed)
		}
	}
	if err := d.Record(t.Output(), *table, "algorithms, control channel", time.Since(began), d.String()); err != nil {
		t.Fatal(err)
	}
}

// seedStats counts results of TestSeeds.
type seedStats struct {
	Tally
	correct         int // ranks with the right result in a run with a fault
	withError       int // ranks with an error
	withRemoteError int // of these, ranks whose error names a rank that has left another group because of the fault
	failedRuns      int // runs with a fault in which a rank got an error
}

func (d *seedStats) String() string {
	return fmt.Sprintf("all fired; %d runs hurt; %d ranks right, %d with an error, of which %d name one that said it left because of another group",
		d.failedRuns, d.correct, d.withError, d.withRemoteError)
}

// seed runs a plan without a fault, where every rank must succeed, and then with a
// drawn fault, which check judges. Every 16th seed repeats the second run, which
// must have the same log. The error names the fault.
func (d *seedStats) seed(seed uint64) error {
	p := newPlan(seed)
	w, res, err := p.run()
	if err == nil {
		err = errors.Join(res.Errs...)
	}
	if err != nil {
		return fmt.Errorf("without a fault: %w", err)
	}
	d.Add(res, nil)
	f := Draw(p.rnd, &w.opt, res.Messages)
	w, res, err = p.run(f)
	if err == nil {
		d.Add(res, w.opt.Faults)
		err = d.check(w, res, &f)
	}
	if err != nil {
		return fmt.Errorf("%d ranks, %+v: %w", p.opt.Ranks, f, err)
	}
	if seed%16 == 0 {
		_, again, err := p.run(f)
		if err != nil {
			return fmt.Errorf("%+v, run again: %w", f, err)
		}
		if again.Hash != res.Hash || again.Events != res.Events {
			return fmt.Errorf("%+v: runs differ: %x and %x, %d and %d events", f, res.Hash, again.Hash, res.Events, again.Events)
		}
		d.Replays++
	}
	return nil
}

// check returns the first violation in a run with a fault. Each survivor must have
// succeeded or return an engine.Failure. The cause of each failed group must fit
// the fault, and be the same on its ranks as far as agree demands. The last rank
// must return in time. check also counts the results in d.
func (d *seedStats) check(w *World, res *Result, f *Fault) error {
	if !res.Fired[0] {
		return errors.New("the fault did not happen")
	}
	hurt, causes := false, make(map[string]*engine.Failure)
	for r, err := range res.Errs {
		if res.Dead[r] {
			continue
		}
		if err == nil {
			d.correct++
		} else {
			hurt = true
			d.withError++
			if !errors.As(err, new(*engine.Failure)) {
				return fmt.Errorf("rank %d: %w", r, err)
			}
			if f.Harmless(&w.opt) {
				return fmt.Errorf("rank %d has an error though all came back: %w", r, err)
			}
		}
		for _, m := range w.procs[r].members {
			c := m.Failure()
			if c == nil {
				continue
			}
			if err := d.checkCause(w, res, f, m); err != nil {
				return fmt.Errorf("rank %d, group %s: %w", r, m.g.name, err)
			}
			if f.Kind == Stall && (r == f.Rank || lossUnknown(w, f, c.Kind, m.worldRanks(c.Lost))) {
				continue
			}
			if first, known := causes[m.g.name]; known && !agree(f, first, c) {
				return fmt.Errorf("group %s: ranks do not agree: %w, %w", m.g.name, first, c)
			}
			causes[m.g.name] = c
		}
	}
	if hurt {
		d.failedRuns++
	}
	if took := res.Elapsed - res.FiredAt[0]; took > mustReturnWithin(f) {
		return fmt.Errorf("the last rank returned %v after the fault", took)
	}
	return nil
}

// mustReturnWithin returns how long after a fault all ranks must have returned. The
// end of a connection is detected at once, silence and stalls after their time
// limits.
func mustReturnWithin(f *Fault) time.Duration {
	const rest = 5 * time.Second
	switch f.Kind {
	case Stall:
		return max(planDeadline, f.For) + rest
	case Vanish:
		return planHostTimeout*5/4 + rest
	case Partition, OneWay:
		return max(planHostTimeout*5/4, f.For) + rest
	}
	return rest
}

// agree reports whether two ranks of a group have the same failure, as they must if
// all ranks can be reached. The loss of a rank may be detected in two ways. A rank
// that was stopped may be resumed when all others have left.
func agree(f *Fault, a, b *engine.Failure) bool {
	switch f.Kind {
	case Partition, OneWay:
		return true
	case Cut, Stall:
		return a.Error() == b.Error()
	}
	return a.Kind == b.Kind && slices.Equal(a.Lost, b.Lost)
}

// above returns the parent group, or nil.
func (g *group) above() *group {
	return g.j.groups[g.name[:max(strings.LastIndexByte(g.name, '/'), 0)]]
}

// worldRanks returns the ranks in the job of ranks in the group.
func (m *member) worldRanks(numbers []int) (list []int) {
	for _, r := range numbers {
		list = append(list, m.g.ranks[r])
	}
	return list
}

// lossUnknown reports whether ranks that are reported as lost have in fact left,
// while the rank that knew it, or this rank, was stopped for longer than the time
// of silence.
func lossUnknown(w *World, f *Fault, kind error, lost []int) bool {
	long := f.Kind == Stall && (f.For == 0 || f.For > w.opt.HostTimeout)
	return long && kind == engine.ErrRankLost && !slices.ContainsFunc(lost, func(r int) bool { return !w.procs[r].left })
}

// checkCause returns an error unless the cause of a survivor's group fits the fault
// in its kind and its lost ranks. m must have failed.
func (d *seedStats) checkCause(w *World, res *Result, f *Fault, m *member) error {
	c := m.Failure()
	kind, ranks := c.Kind, m.g.ranks
	lost := m.worldRanks(c.Lost)
	// A group that is being made fails if its parent fails, even because of a rank
	// that is not in it.
	if len(c.Above) > 0 && kind == engine.ErrAborted && m.g.above() != nil {
		kind, ranks = engine.ErrRankLost, m.g.above().ranks
		for _, r := range c.Above {
			lost = append(lost, ranks[r])
		}
	}
	right := false
	switch f.Kind {
	case Crash, Vanish:
		right = kind == engine.ErrRankLost && slices.Equal(lost, []int{f.Rank})
	case Stall:
		right = kind == engine.ErrTimeout || lossUnknown(w, f, kind, lost)
	case Cut:
		right = kind == engine.ErrRankLost && len(lost) == 1
	case Partition, OneWay:
		// The lost rank is on the other side, as seen from this rank or from the
		// rank where the failure began. A message that crosses a one-way partition
		// may name a rank on this side.
		side := func(r int) bool { return r == f.Rank || slices.Contains(f.Peers, r) }
		right = kind == engine.ErrRankLost && len(lost) == 1 && !c.Left && (f.Kind == OneWay ||
			slices.ContainsFunc(ranks, func(r int) bool { return side(r) != side(lost[0]) }))
	}
	if right {
		return nil
	}
	// A rank with an error also closes its other groups, and says why.
	if c.Left && c.Event == engine.LeftElsewhere {
		d.withRemoteError++
		return nil
	}
	return fmt.Errorf("the cause is wrong: lost %v: %w", lost, c)
}
