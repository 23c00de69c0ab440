package sim

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/race"
)

// Pieces of the long run: go test ./internal/sim -run TestSeeds -seeds 10000 -from 20000
var (
	seeds = flag.Int("seeds", 0, "how many seeds TestSeeds runs; zero: a usual number, or 100,000 if TUTTI_TEST_HEAVY is set")
	from  = flag.Uint64("from", 0, "the first seed")
	table = flag.String("record", "", "a file to which a row is added that says what TestSeeds did")
)

// TestSeeds plays programs that their seed decides, first without and then with
// a fault, and checks after each run that nothing hangs, that every result is
// right or an error, and that the errors name what happened.
func TestSeeds(t *testing.T) {
	n := *seeds
	switch {
	case n > 0:
	case os.Getenv("TUTTI_TEST_HEAVY") != "":
		n = 100_000
	case testing.Short() || race.Enabled:
		n = 50
	default:
		n = 300
	}
	d := drill{Tally: Tally{First: *from, Seeds: n}}
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

// A drill counts what was seen.
type drill struct {
	Tally
	well  int // ranks that were right in a run with a fault
	told  int // ranks that got an error
	aside int // of these, ranks that were told of a rank that had left another group because of it
	hurt  int // runs with a fault in which somebody got an error
}

func (d *drill) String() string {
	return fmt.Sprintf("all fired; %d runs hurt; %d ranks right, %d with an error, of which %d name one that said it left because of another group",
		d.hurt, d.well, d.told, d.aside)
}

func (d *drill) seed(seed uint64) error {
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
		if err != nil || again.Hash != res.Hash || again.Events != res.Events {
			return fmt.Errorf("%+v: runs differ: %x and %x: %w", f, res.Hash, again.Hash, err)
		}
		d.Replays++
	}
	return nil
}

// check looks at a run with a fault.
func (d *drill) check(w *World, res *Result, f *Fault) error {
	if !res.Fired[0] {
		return errors.New("the fault did not happen")
	}
	hurt, said := false, make(map[string]*engine.Failure)
	for r, err := range res.Errs {
		if res.Dead[r] {
			continue
		}
		if err == nil {
			d.well++
		} else {
			hurt = true
			d.told++
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
			if f.Kind == Stall && (r == f.Rank || unknown(w, f, c.Kind, m.worldRanks(c.Lost))) {
				continue
			}
			if first, known := said[m.g.name]; known && !agree(f, first, c) {
				return fmt.Errorf("group %s: ranks do not agree: %w, %w", m.g.name, first, c)
			}
			said[m.g.name] = c
		}
	}
	if hurt {
		d.hurt++
	}
	if took := res.Elapsed - res.FiredAt[0]; took > soon(f) {
		return fmt.Errorf("the last rank returned %v after the fault", took)
	}
	return nil
}

// soon is how long after a fault all ranks must have returned: connections that
// end are noticed at once, silence and stalls in their time.
func soon(f *Fault) time.Duration {
	const rest = 5 * time.Second
	switch f.Kind {
	case Stall:
		return max(planTimeout, f.For) + rest
	case Vanish:
		return planSilence*5/4 + rest
	case Partition, OneWay:
		return max(planSilence*5/4, f.For) + rest
	}
	return rest
}

// agree reports whether two ranks of a group say the same, as they must if all can be reached. That a
// rank is lost may be noticed in two ways. A rank that was stopped may go on when all others have left.
func agree(f *Fault, a, b *engine.Failure) bool {
	switch f.Kind {
	case Partition, OneWay:
		return true
	case Cut, Stall:
		return a.Error() == b.Error()
	}
	return a.Kind == b.Kind && slices.Equal(a.Lost, b.Lost)
}

// above is the group that this one was made of; nil: none.
func (g *group) above() *group {
	return g.j.groups[g.name[:max(strings.LastIndexByte(g.name, '/'), 0)]]
}

// worldRanks are the ranks of the job that have these numbers in the group.
func (m *member) worldRanks(numbers []int) (list []int) {
	for _, r := range numbers {
		list = append(list, m.g.ranks[r])
	}
	return list
}

// unknown reports whether ranks that are taken for lost have left, and a rank that knew was stopped for
// longer than the time of silence, or was the rank that was stopped.
func unknown(w *World, f *Fault, kind error, lost []int) bool {
	long := f.Kind == Stall && (f.For == 0 || f.For > w.opt.Silence)
	return long && kind == engine.ErrRankLost && !slices.ContainsFunc(lost, func(r int) bool { return !w.procs[r].left })
}

// checkCause looks at why a survivor's group has ended.
func (d *drill) checkCause(w *World, res *Result, f *Fault, m *member) error {
	c := m.Failure()
	kind, ranks := c.Kind, m.g.ranks
	lost := m.worldRanks(c.Lost)
	// A group ends while it is made if the one that it is made of does, also for
	// want of a rank that is to be in none or another.
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
		right = kind == engine.ErrTimeout || unknown(w, f, kind, lost)
	case Cut:
		right = kind == engine.ErrRankLost && len(lost) == 1
	case Partition, OneWay:
		// The rank lost is on the other side, as seen from here or from where the failure
		// began. What crosses a one-way partition may say so of a rank on this side.
		side := func(r int) bool { return r == f.Rank || slices.Contains(f.Peers, r) }
		right = kind == engine.ErrRankLost && len(lost) == 1 && !c.Left && (f.Kind == OneWay ||
			slices.ContainsFunc(ranks, func(r int) bool { return side(r) != side(lost[0]) }))
	}
	if right {
		return nil
	}
	// A rank that has an error closes its other groups, too, and says why.
	if c.Left && c.Event == engine.LeftElsewhere {
		d.aside++
		return nil
	}
	return fmt.Errorf("the cause is wrong: lost %v: %w", lost, c)
}
