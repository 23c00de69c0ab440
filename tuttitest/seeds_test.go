package tuttitest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/race"
	"github.com/tutti-go/tutti/internal/sim"
)

// Flags for a part of a long run: go test ./tuttitest -run TestSeeds -seeds 10000
// -from 20000
var (
	seeds = flag.Int("seeds", 0, "how many seeds TestSeeds runs; zero: a usual number")
	from  = flag.Uint64("from", 0, "the first seed")
	table = flag.String("record", "", "a file to which a row is added that says what TestSeeds did")
)

// TestSeeds runs ranks that continue after losses: with one fault, and with a
// second, later fault, most often during Shrink. It checks that all ranks that
// continue agree on everything.
func TestSeeds(t *testing.T) {
	n := *seeds
	switch {
	case n > 0:
	case testing.Short() || race.Enabled:
		n = 40
	default:
		n = 250
	}
	d := seedStats{Tally: sim.Tally{First: *from, Seeds: n}}
	began := time.Now()
	for seed := *from; seed < *from+uint64(n); seed++ {
		if err := d.seed(seed); err != nil {
			t.Fatalf("seed %d: %v\nto repeat it: go test ./tuttitest -run 'TestSeeds$' -seeds 1 -from %d", seed, err, seed)
		}
	}
	if err := d.Record(t.Output(), *table, "Comms that shrink", time.Since(began), d.String()); err != nil {
		t.Fatal(err)
	}
}

// TestBroken checks that the test detects a broken agreement: a store that
// overwrites a generation's successor.
func TestBroken(t *testing.T) {
	d := seedStats{broken: true}
	for seed := range uint64(1000) {
		if err := d.seed(seed); err != nil {
			if !errors.Is(err, errDisagree) && !errors.Is(err, sim.ErrTwoSuccessors) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Error("no seed has shown it")
}

// seedStats counts results of TestSeeds.
type seedStats struct {
	sim.Tally
	broken bool // the store sets unconditionally

	shrunk   int // number of Comms made by Shrink
	finished int // ranks that completed the program
	excluded int // ranks that were excluded
	failed   int // ranks that could not reach the store, or timed out waiting for others
}

func (d *seedStats) String() string {
	return fmt.Sprintf("all fired; %d new Comms; %d ranks finished, %d were excluded, %d could not agree",
		d.shrunk, d.finished, d.excluded, d.failed)
}

// seed runs the program without a fault, where every rank must succeed, and then
// with one or two faults, which check judges. Every 16th seed repeats the last run,
// which must have the same log. The error names the faults.
func (d *seedStats) seed(seed uint64) error {
	rnd := rand.New(rand.NewPCG(seed, 6))
	ranks := 2 + rnd.IntN(7)
	opt := Options{
		Ranks: ranks, Seed: seed, Timeout: time.Minute, HostTimeout: 30 * time.Second,
		ShrinkTimeout: []time.Duration{time.Second, 5 * time.Second, 20 * time.Second}[rnd.IntN(3)],
		Latency:       time.Duration(5+rnd.IntN(200)) * time.Microsecond,
		broken:        d.broken,
	}
	l := newElasticProgram(seed, ranks)
	res, err := d.run(opt, l)
	if err == nil {
		err = errors.Join(res.Errs...)
	}
	if err != nil {
		return fmt.Errorf("without a fault: %w", err)
	}
	faults := 1 + rnd.IntN(2)
	for range faults {
		f, ok := drawLaterFault(rnd, &opt, res)
		if !ok {
			break
		}
		opt.Faults = append(slices.Clone(opt.Faults), f)
		if res, err = d.run(opt, l); err == nil {
			err = d.check(&opt, l, res)
		}
		if err != nil {
			return fmt.Errorf("%d ranks, shrink timeout %v, %+v: %w", ranks, opt.ShrinkTimeout, opt.Faults, err)
		}
	}
	if seed%16 == 0 {
		again, err := Simulate(opt, l.rankMain)
		if err != nil || again.Hash != res.Hash {
			return fmt.Errorf("%+v: runs differ: %x and %x: %w", opt.Faults, res.Hash, again.Hash, err)
		}
		d.Replays++
	}
	return nil
}

// drawLaterFault draws a fault that happens after the existing faults. It returns
// false if no rank that is alive sends anything after them.
func drawLaterFault(rnd *rand.Rand, opt *Options, res *Result) (Fault, bool) {
	left, any := make([]int, len(res.Messages)), false
	for r, n := range res.Messages {
		if !res.Dead[r] {
			left[r] = n - res.all.SentThen[r]
			any = any || left[r] > 0
		}
	}
	in := opt.internal()
	if err := in.Fill(); err != nil || !any {
		return Fault{}, false
	}
	d := sim.Draw(rnd, &in, left)
	return Fault{Kind: Kind(d.Kind), Rank: d.Rank, Message: d.Message + res.all.SentThen[d.Rank], For: d.For, Peers: d.Peers}, true
}

// run runs the program once, with fresh records. It returns an error if the run
// fails, a fault does not happen, or a rank has recorded a violation.
func (d *seedStats) run(opt Options, l *elasticProgram) (*Result, error) {
	l.begin(opt.Ranks)
	res, err := Simulate(opt, l.rankMain)
	if err != nil {
		return nil, err
	}
	d.shrunk += l.shrunk
	in := opt.internal()
	d.Add(res.all, in.Faults)
	for i, fired := range res.Fired {
		if !fired {
			return nil, fmt.Errorf("%+v did not happen", opt.Faults[i])
		}
	}
	return res, l.violation
}

// check returns the first violation in a run with faults. Ranks that have completed
// the program must have equal endings. The numbers that ended the generations must
// be right. Any other survivor must have an error that the faults explain. check
// also counts the results in d.
func (d *seedStats) check(opt *Options, l *elasticProgram, res *Result) error {
	var first *ending
	for r, e := range l.endings {
		switch {
		case e == nil:
		case first == nil:
			first = e
		case !reflect.DeepEqual(first, e):
			return fmt.Errorf("%w: rank %d ends with %+v, others with %+v", errDisagree, r, *e, *first)
		}
	}
	for generation, done := range l.done {
		if err := l.checkDone(generation, done); err != nil {
			return err
		}
	}
	in := opt.internal()
	if err := in.Fill(); err != nil {
		return err
	}
	for r, err := range res.Errs {
		if res.Dead[r] {
			continue
		}
		e := (*tutti.Error)(nil)
		switch ended := l.endings[r] != nil; {
		case ended && err == nil:
			d.finished++
			continue
		case ended || !errors.As(err, &e):
			return fmt.Errorf("rank %d: %w", r, err)
		case errors.Is(err, tutti.ErrExcluded):
			d.excluded++
		case errors.Is(err, tutti.ErrTimeout):
			d.failed++
		case errors.Is(err, tutti.ErrAborted) && slices.ContainsFunc(opt.Faults, func(f Fault) bool { return f.Kind == Cut && f.Rank == r }):
			d.failed++ // its request to the store was lost
		default:
			return fmt.Errorf("rank %d: %w", r, err)
		}
		if len(opt.Faults) == 1 && !mayBeExcluded(&in, l, opt.ShrinkTimeout, r, err) {
			return fmt.Errorf("rank %d did not go on: %w", r, err)
		}
	}
	return nil
}

// mayBeExcluded reports whether the fault may lead to the exclusion of a rank. A
// short fault does no harm, unless the ranks shrink meanwhile for another reason.
func mayBeExcluded(opt *sim.Options, l *elasticProgram, shrinkTimeout time.Duration, r int, err error) bool {
	f := &opt.Faults[0]
	if f.Harmless(opt) && l.abort < 0 {
		return false
	}
	// Ranks detect at different times that a host does not answer.
	hasty := shrinkTimeout < opt.HostTimeout/8 && errors.Is(err, tutti.ErrExcluded)
	switch f.Kind {
	case sim.Crash:
		// The new Comm's rank 0 may die when only some ranks have joined. These
		// wait in Agree for the others, which may decide meanwhile without them.
		return f.Rank == 0 && l.abort >= 0 && errors.Is(err, tutti.ErrExcluded)
	case sim.Vanish:
		return hasty
	case sim.Stall:
		// The other ranks may wait for it in Agree, on a Comm that has not failed.
		return r == f.Rank || errors.Is(err, tutti.ErrTimeout)
	case sim.Partition, sim.OneWay:
		// The store is on the side of the other ranks. After an Abort they shrink
		// while the partition lasts, and the new Comm's rank 0 may be on the other
		// side.
		return r == f.Rank || slices.Contains(f.Peers, r) || hasty || l.abort >= 0
	}
	return true
}

// checkDone checks the number that was agreed on at the end of a generation.
func (l *elasticProgram) checkDone(generation string, done uint64) error {
	var number int
	name := "world/1"
	if _, err := fmt.Sscanf(generation, "world/%d", &number); err == nil {
		name = fmt.Sprintf("world/%d", number+1)
	}
	next, formed := l.generations[name]
	if !formed {
		return nil
	}
	least := ^uint64(0)
	for _, id := range next {
		if went, came := l.progress[generation][id]; came {
			least = min(least, went)
		}
	}
	if done != least {
		return fmt.Errorf("%w: generation %s ended with operation %d, but the members of the next had all completed %d", errDisagree, generation, done, least)
	}
	return nil
}

// TestThousand loses one of a thousand ranks during an AllReduce; the others
// continue.
func TestThousand(t *testing.T) {
	ranks := 1000
	if testing.Short() || race.Enabled {
		ranks = 100
	}
	began := time.Now()
	opt := Options{Ranks: ranks, Seed: 1, Faults: []Fault{{Kind: Crash, Rank: 77, Message: 15}}}
	res := Run(t, opt, func(ctx context.Context, c *tutti.Comm) error {
		one := func() (int, error) { return tutti.AllReduceValue(ctx, c, 1, tutti.Sum) }
		n, err := one()
		for err == nil && n == ranks {
			n, err = one()
		}
		if lost := (*tutti.Error)(nil); !errors.As(err, &lost) || !slices.Equal(lost.Lost, []int{77}) {
			return fmt.Errorf("the sum is %d: %w", n, err)
		}
		next, _, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		c = next
		if n, err = one(); err == nil && n != ranks-1 {
			err = fmt.Errorf("the sum of those who are left is %d", n)
		}
		return errors.Join(err, c.Close())
	})
	for r, err := range res.Errs {
		if !res.Dead[r] && err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	t.Logf("%d ranks: %v virtual, %v real", ranks, res.Elapsed, time.Since(began))
}
