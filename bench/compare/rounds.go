package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// A sample is one rank's measurement of one size in one run, in microseconds.
type sample struct {
	bytes, rank, iters  int
	p50, p99, p999, min float64
	perSecond           float64
}

// A system is one of the compared libraries or builds.
type system struct {
	name string
	// run measures all sizes once.
	run func(ctx context.Context) ([]sample, error)
}

// results are all samples of one transport, by the name of the system.
type results map[string][]sample

// compare runs the comparison, transport after transport. The table of each transport goes to out
// when its rounds are complete, progress goes to log. A failure of tutti or a cancelled ctx ends it
// with an error; a failure of a peer only leaves a gap in the table.
func compare(ctx context.Context, o options, out, log io.Writer) error {
	dir, err := os.MkdirTemp("", "tutti-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	found := findPeers(ctx, o, dir, log)
	for _, transport := range o.transports {
		got, err := rounds(ctx, o, systems(o, self, found, transport, log), transport, log)
		if err != nil {
			return err
		}
		switch {
		case o.stats:
			err = printStats(out, o, transport, got)
		case o.json:
			err = printJSON(out, rows(o, transport, got))
		default:
			err = printTable(out, o, transport, rows(o, transport, got))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// systems returns the systems for a transport, tutti first. It logs the peers that cannot take part
// and leaves them out.
func systems(o options, self string, found []peer, transport string, log io.Writer) []system {
	build := func(name, program string) system {
		return system{name, func(ctx context.Context) ([]sample, error) { return runTutti(ctx, o, transport, program) }}
	}
	all := []system{build("tutti", self)}
	if o.other != "" {
		all = append(all, build("other", o.other))
	}
	if floor := floorOf(o, transport); floor != nil && !o.stats {
		all = append(all, system{"floor", floor})
	}
	for _, p := range found {
		if why := p.lacks(o, transport); why != "" {
			fmt.Fprintf(log, "%s: left out, %s\n", p.name(), why)
			continue
		}
		all = append(all, system{p.name(), func(ctx context.Context) ([]sample, error) { return p.run(ctx, o, transport) }})
	}
	return all
}

// rounds runs all systems in turn. Each round begins with another system, so that no system always
// runs after the same one. A run that takes longer than o.timeout is cancelled. A failed run of
// tutti, or a cancelled ctx, ends the rounds with an error. A failed run of another system is
// logged.
func rounds(ctx context.Context, o options, all []system, transport string, log io.Writer) (results, error) {
	got := results{}
	for round := range o.rounds {
		first := round % len(all)
		for _, s := range slices.Concat(all[first:], all[:first]) {
			began := time.Now()
			runCtx, cancel := context.WithTimeout(ctx, o.timeout)
			samples, err := s.run(runCtx)
			if errors.Is(runCtx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("not done after %v: %w", o.timeout, err)
			}
			cancel()
			switch {
			case ctx.Err() != nil:
				return nil, errors.New("interrupted")
			case err != nil && s.name == "tutti":
				return nil, fmt.Errorf("tutti on %s: %w", transport, err)
			case err != nil: // a peer that fails leaves a gap in the table
				fmt.Fprintf(log, "%s on %s: %v\n", s.name, transport, err)
			}
			got[s.name] = append(got[s.name], samples...)
			fmt.Fprintf(log, "%s, round %d of %d: %s took %.1fs\n",
				transport, round+1, o.rounds, s.name, time.Since(began).Seconds())
		}
	}
	return got, nil
}

// sorted returns a value of a rank's samples of one size in each round, smallest
// first. pick selects the value.
func (r results) sorted(system string, bytes, rank int, pick func(sample) float64) []float64 {
	var all []float64
	for _, s := range r[system] {
		if s.bytes == bytes && s.rank == rank {
			all = append(all, pick(s))
		}
	}
	slices.Sort(all)
	return all
}

// median returns the median of these values, or nil if there are none.
func (r results) median(system string, bytes, rank int, pick func(sample) float64) *float64 {
	all := r.sorted(system, bytes, rank, pick)
	if len(all) == 0 {
		return nil
	}
	m := all[len(all)/2]
	if len(all)%2 == 0 {
		m = (m + all[len(all)/2-1]) / 2
	}
	return &m
}
