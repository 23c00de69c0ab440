package tuttitest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/sim"
)

// Simulate runs fn on every simulated rank, and on every newcomer that the ranks admit,
// with the Comm of Join. It returns when fn has returned on all that are not dead,
// and closes the Comms. The Result has the errors of the ranks. The error of Simulate
// itself says that ranks hang, that a rank panicked, or that the Options are invalid.
func Simulate(opt Options, fn func(ctx context.Context, c *tutti.Comm) error) (*Result, error) {
	if fn == nil {
		return nil, errors.New("tuttitest: the function is nil")
	}
	res, err := sim.Run(opt.internal(), func(ctx context.Context, s *sim.Rank) error {
		// The Comm is made for a world of one rank; attacher replaces its engine
		// with the simulator's, which is that of a rank of the job or of a newcomer.
		c, err := tutti.Join(ctx, tutti.Config{
			Size: 1, Timeout: opt.Timeout, ShrinkTimeout: opt.ShrinkTimeout, Device: attacher{s}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		err = fn(ctx, c)
		return errors.Join(err, c.Close())
	})
	if err != nil {
		err = fmt.Errorf("tuttitest: seed %d: %w", opt.Seed, err)
	}
	if res == nil {
		return nil, err
	}
	return &Result{
		Seed: opt.Seed, Faults: opt.Faults, Hash: res.Hash, Elapsed: res.Elapsed,
		Errs: res.Errs, Dead: res.Dead, Fired: res.Fired, Messages: res.Messages, all: res,
	}, err
}

// An attacher puts a simulated rank's engine where Join would put another.
type attacher struct{ rank *sim.Rank }

// Attach returns the simulated engine.
func (p attacher) Attach(e engine.Engine, _ engine.DeviceOptions) (engine.Engine, error) {
	if _, simulated := e.(engine.Hosted); simulated { // of a later generation
		return e, nil
	}
	return p.rank, e.Close()
}

// Run is Simulate in a test. It fails the test if Simulate returns an error, or if
// one of the faults did not happen.
func Run(tb testing.TB, opt Options, fn func(ctx context.Context, c *tutti.Comm) error) *Result {
	tb.Helper()
	res, err := Simulate(opt, fn)
	if err != nil {
		tb.Fatal(err)
	}
	for i, fired := range res.Fired {
		if !fired {
			f := &opt.Faults[i]
			tb.Fatalf("tuttitest: seed %d: the %v of rank %d did not happen; it sent %d messages", opt.Seed, f.Kind, f.Rank, res.Messages[f.Rank])
		}
	}
	return res
}

// Explore runs fn with n seeds, beginning with opt.Seed. For each seed it runs fn
// without a fault, where all ranks must succeed, and then, if the ranks send messages,
// with a fault at a message that the seed selects. The fault is of one of the kinds,
// or of any kind if there are none. Explore checks that nothing hangs, that the fault
// happens, and that a fault that must go unnoticed, such as a short stall, causes no
// error. check, if not nil, checks the result of the run with the fault. Explore stops at
// the first seed that fails. Run with the Seed and the Faults that it prints
// replays the failure.
func Explore(tb testing.TB, opt Options, n int, fn func(ctx context.Context, c *tutti.Comm) error, check func(*Result) error, kinds ...Kind) {
	tb.Helper()
	if err := checkKinds(kinds); err != nil {
		tb.Fatal(err)
	}
	for range n {
		opt.Faults = nil
		res := Run(tb, opt, fn)
		if err := errors.Join(res.Errs...); err != nil {
			tb.Fatalf("tuttitest: seed %d, without a fault: %v", opt.Seed, err)
		}
		if f, harmless, ok := draw(&opt, res.Messages, kinds); ok {
			opt.Faults = []Fault{f}
			res = Run(tb, opt, fn)
			err := error(nil)
			if harmless {
				err = errors.Join(res.Errs...)
			}
			if err == nil && check != nil {
				err = check(res)
			}
			if err != nil {
				tb.Fatalf("tuttitest: seed %d, %+v: %v", opt.Seed, f, err)
			}
		}
		opt.Seed++
	}
}

// maybeLate reports whether a rank that a fault stops or cuts off may come too late for the
// Comm that Grow makes.
func (o *Options) maybeLate(f *Fault) bool {
	limit := o.ShrinkTimeout
	if limit <= 0 {
		limit = 10 * time.Second // the default of tutti.Config
	}
	return len(o.Newcomers) > 0 && f.For >= limit/2
}

func checkKinds(kinds []Kind) error {
	for _, k := range kinds {
		if k < Crash || k > Kind(sim.LastKind) {
			return fmt.Errorf("tuttitest: %d is no kind of fault", k)
		}
	}
	return nil
}

// draw returns a fault that will happen, if the ranks send messages at all.
func draw(opt *Options, messages []int, kinds []Kind) (f Fault, harmless, ok bool) {
	total := 0
	for _, n := range messages {
		total += n
	}
	if total == 0 {
		return f, false, false
	}
	in := opt.internal()
	if err := in.Fill(); err != nil {
		return f, false, false
	}
	list := make([]sim.Kind, len(kinds))
	for i, k := range kinds {
		list[i] = sim.Kind(k)
	}
	d := sim.Draw(rand.New(rand.NewPCG(opt.Seed, 4)), &in, messages, list...)
	f = Fault{Kind: Kind(d.Kind), Rank: d.Rank, Message: d.Message, At: d.At, For: d.For, Peers: d.Peers}
	return f, d.Harmless(&in) && !opt.maybeLate(&f), true
}
