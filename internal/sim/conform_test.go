package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/race"
)

// outside are cases that wait for something other than the engine, such as a
// goroutine of their own or a real clock. They would block the simulation.
var outside = []string{"at once", "goroutines", "beside", "absent", "cancelled", "stopped", "give up"}

// TestConformance runs the cases of the conformance suite that block only in the
// engine.
func TestConformance(t *testing.T) {
	ran, faults, some := 0, 0, race.Enabled || testing.Short()
	for i, c := range enginetest.Cases(enginetest.Options{Light: true}) {
		if slices.ContainsFunc(outside, func(s string) bool { return strings.Contains(c.Name, s) }) || some && i%8 != 0 {
			continue
		}
		ran++
		if c.Fault != nil {
			faults++
		}
		t.Run(c.Name, func(t *testing.T) { runCase(t, uint64(i), &c) })
	}
	if !some && (ran < 100 || faults < 30) {
		t.Errorf("only %d cases were run, %d with a fault", ran, faults)
	}
}

// runCase runs one case of the conformance suite on all simulated ranks. Without a
// fault every rank must return nil. With a fault every survivor must return an
// engine.Failure that passes the case's check, and all survivors must report the
// same text.
func runCase(t *testing.T, seed uint64, c *enginetest.Case) {
	ranks := enginetest.NewRankFactory()
	res := must(t, Options{Seed: seed, Ranks: c.Ranks}, func(ctx context.Context, s *Rank) error {
		return c.Body(ctx, ranks.Rank(s))
	})
	if c.Fault == nil {
		if err := errors.Join(res.Errs...); err != nil {
			t.Fatal(err)
		}
		return
	}
	said := ""
	for r, err := range res.Errs {
		if slices.Contains(c.Fault.Lost, r) {
			continue
		}
		f := (*engine.Failure)(nil)
		if !errors.As(err, &f) {
			t.Fatalf("rank %d: %v", r, err)
		}
		if err := c.Fault.Check(err); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		if said == "" {
			said = f.Error()
		}
		if f.Error() != said {
			t.Errorf("ranks report different causes:\n%s\n%s", said, f)
		}
	}
}
