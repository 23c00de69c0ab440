package tuttitest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/race"
	"github.com/tutti-go/tutti/internal/sim"
)

// TestGrowSeeds runs the elastic program with newcomers, under one and two faults of
// ranks and newcomers.
func TestGrowSeeds(t *testing.T) {
	n := *seeds
	switch {
	case n > 0:
	case testing.Short() || race.Enabled:
		n = 60
	default:
		n = 300
	}
	d := growStats{Tally: sim.Tally{First: *from, Seeds: n}}
	began := time.Now()
	for seed := *from; seed < *from+uint64(n); seed++ {
		if err := d.seed(seed); err != nil {
			t.Fatalf("seed %d: %v\nto repeat it: go test ./tuttitest -run 'TestGrowSeeds$' -seeds 1 -from %d", seed, err, seed)
		}
	}
	if err := d.Record(t.Output(), *table, "Comms that grow", time.Since(began), d.String()); err != nil {
		t.Fatal(err)
	}
	if n >= 60 && min(d.grown, d.shrunk, d.admitted, d.newcomersHit, d.excluded, d.failed) == 0 {
		t.Error("something never happened: ", d.String())
	}
}

// TestGrowBroken checks that the test detects a store that overwrites a generation's successor.
func TestGrowBroken(t *testing.T) {
	d := growStats{broken: true}
	for seed := range uint64(2000) {
		if err := d.seed(seed); err != nil {
			if !errors.Is(err, sim.ErrTwoSuccessors) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Error("no seed has shown it")
}

// growStats counts the results of TestGrowSeeds.
type growStats struct {
	sim.Tally
	broken        bool // the store sets unconditionally
	grown, shrunk int  // number of Comms
	admitted      int  // newcomers
	newcomersHit  int  // faults of newcomers
	finished      int  // processes with the sum
	excluded      int
	failed        int // processes that could not reach the store, or timed out
}

func (d *growStats) String() string {
	return fmt.Sprintf("all fired, %d at newcomers; %d new Comms by Grow, %d by Shrink; %d newcomers were admitted; %d processes finished, %d were excluded, %d could not agree",
		d.newcomersHit, d.grown, d.shrunk, d.admitted, d.finished, d.excluded, d.failed)
}

func (d *growStats) seed(seed uint64) error {
	rnd := rand.New(rand.NewPCG(seed, 7))
	opt := Options{
		Ranks: 1 + rnd.IntN(5), Seed: seed, Timeout: time.Minute, HostTimeout: 30 * time.Second,
		ShrinkTimeout: []time.Duration{time.Second, 5 * time.Second, 20 * time.Second}[rnd.IntN(3)],
		Latency:       time.Duration(5+rnd.IntN(200)) * time.Microsecond,
		broken:        d.broken,
	}
	l := &sumProgram{steps: 4 + rnd.IntN(12), pause: time.Duration(rnd.IntN(3)) * 10 * time.Millisecond}
	for range 1 + rnd.IntN(2) {
		opt.Newcomers = append(opt.Newcomers, time.Duration(rnd.IntN(int(l.pause)*l.steps/2+1)))
	}
	if rnd.IntN(3) == 0 {
		l.by = len(opt.Newcomers)
	}
	res, err := d.run(opt, l)
	if err == nil {
		err = errors.Join(res.Errs...)
	}
	if err != nil {
		return fmt.Errorf("without a fault: %w", err)
	}
	for range 1 + rnd.IntN(2) {
		f, ok := drawLaterFault(rnd, &opt, res)
		if !ok {
			break
		}
		if f.For > 0 && rnd.IntN(2) == 0 {
			f.For = opt.ShrinkTimeout / 4
		}
		opt.Faults = append(slices.Clone(opt.Faults), f)
		if res, err = d.run(opt, l); err == nil {
			err = d.check(&opt, res)
		}
		if err != nil {
			return fmt.Errorf("%+v by %d: %w", opt, l.by, err)
		}
	}
	if seed%16 == 0 {
		again, err := Simulate(opt, l.main)
		if err != nil || again.Hash != res.Hash {
			return fmt.Errorf("%+v: runs differ: %x and %x: %w", opt, res.Hash, again.Hash, err)
		}
		d.Replays++
	}
	return nil
}

// run runs the program once. It returns an error if the run fails, or a fault does
// not happen.
func (d *growStats) run(opt Options, l *sumProgram) (*Result, error) {
	l.begin()
	res, err := Simulate(opt, l.main)
	if err != nil {
		return nil, err
	}
	d.grown, d.shrunk = d.grown+len(l.grows), d.shrunk+len(l.shrinks)
	d.admitted, d.finished = d.admitted+l.admitted, d.finished+l.finished
	in := opt.internal()
	d.Add(res.all, in.Faults)
	for i, fired := range res.Fired {
		if !fired {
			return nil, fmt.Errorf("%+v did not happen", opt.Faults[i])
		}
		if opt.Faults[i].Rank >= opt.Ranks {
			d.newcomersHit++
		}
	}
	return res, nil
}

// check returns the first error that the faults do not explain.
func (d *growStats) check(opt *Options, res *Result) error {
	for r, err := range res.Errs {
		switch {
		case res.Dead[r] || err == nil:
			continue
		case errors.Is(err, tutti.ErrExcluded):
			d.excluded++
		case errors.Is(err, tutti.ErrTimeout):
			d.failed++
		case errors.Is(err, tutti.ErrAborted) && slices.ContainsFunc(opt.Faults, func(f Fault) bool { return f.Kind == Cut && f.Rank == r }):
			d.failed++ // its request to the store was lost
		default:
			return fmt.Errorf("rank %d: %w", r, err)
		}
		if len(opt.Faults) == 1 && !explained(opt, r, err) {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return nil
}

// explained reports whether the only fault may be the cause of a rank's error.
func explained(opt *Options, r int, err error) bool {
	f := &opt.Faults[0]
	excluded := errors.Is(err, tutti.ErrExcluded)
	if f.For > 0 && f.For < opt.ShrinkTimeout/2 {
		return false
	}
	switch f.Kind {
	case Vanish: // ranks detect at different times that a host does not answer
		return excluded && opt.ShrinkTimeout < opt.HostTimeout/8
	case Stall:
		return r == f.Rank
	case Cut: // one of the two ranks is lost
		return r == f.Rank || excluded
	case Partition, OneWay:
		return r == f.Rank || slices.Contains(f.Peers, r)
	}
	return false
}
