package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/keepalive"
	"github.com/tutti-go/tutti/internal/simrank"
	"github.com/tutti-go/tutti/internal/wait"
)

// Options configure a simulation. All times are virtual.
type Options struct {
	Seed  uint64
	Ranks int
	// Newcomers are the virtual times at which processes call Join to be admitted to the
	// running job. They are the processes Ranks, Ranks+1 and so on.
	Newcomers []time.Duration
	// Timeout bounds each operation. Zero: five minutes, as in tutti.Config. Negative: no bound.
	Timeout time.Duration
	// HostTimeout is how long a host may not answer before it is lost. Zero: 30 s.
	HostTimeout time.Duration
	// Latency is the approximate latency of a link, one way. Zero: 20 us.
	Latency time.Duration
	// Bandwidth is the bandwidth of a link, in bytes per second. Zero: 100 Gbit/s.
	Bandwidth float64
	// Window is how many frames from one rank to another are in transit before the
	// sender waits. Zero: 4. Negative: none, so the sender waits until a frame is
	// taken.
	Window int
	// Limit is the time after which a run counts as hung. Zero: an hour.
	Limit time.Duration
	// Faults are the faults of the run.
	Faults []Fault
	// Network are the options of the network engines. The simulator sets Timeout,
	// ParkingLot, OnFail and Sub.
	Network network.Options
	// Broken makes the store set unconditionally where it should compare and set.
	// Tests use it to show that they detect the error.
	Broken bool
	// Log receives a line for every event. Nil: no log.
	Log io.Writer
}

// Fill sets the defaults, and returns an error if an option is invalid.
func (o *Options) Fill() error {
	if o.Ranks < 1 {
		return fmt.Errorf("%d ranks cannot be simulated", o.Ranks)
	}
	for _, d := range o.Newcomers {
		if d < 0 {
			return fmt.Errorf("a newcomer at %v; the time must not be negative", d)
		}
	}
	for _, f := range o.Faults {
		for _, r := range append([]int{f.Rank}, f.Peers...) {
			if r < 0 || r >= o.processes() {
				return fmt.Errorf("a %v of rank %d, where there are %d ranks and %d newcomers", f.Kind, r, o.Ranks, len(o.Newcomers))
			}
		}
		switch {
		case f.Kind < Crash || f.Kind > LastKind:
			return fmt.Errorf("%v is none that can be simulated", f.Kind)
		case f.Message < 0 || f.At < 0 || f.For < 0:
			return fmt.Errorf("the %v of rank %d has a negative message or time", f.Kind, f.Rank)
		}
	}
	for _, d := range []struct {
		d   *time.Duration
		def time.Duration
	}{{&o.Timeout, engine.DefaultTimeout}, {&o.HostTimeout, keepalive.DefaultHostTimeout}, {&o.Latency, defaultLatency}, {&o.Limit, time.Hour}} {
		if *d.d == 0 {
			*d.d = d.def
		}
	}
	if o.HostTimeout < 0 || o.Latency < 0 || o.Limit < 0 || o.Bandwidth < 0 {
		return errors.New("a host timeout, latency, limit or bandwidth is negative")
	}
	if o.Window == 0 {
		o.Window = 4
	}
	return nil
}

// processes returns the number of ranks and newcomers.
func (o *Options) processes() int { return o.Ranks + len(o.Newcomers) }

// A World is the simulated ranks of one run.
type World struct {
	opt       Options
	s         *sched
	net       simNetwork
	procs     []*proc
	violation error // an invariant that does not hold
	ops       int   // calls that ranks completed

	jobs  []*job // in order of creation; the first is that of all ranks
	store *storeServer
	fired []bool          // by fault: it happened
	when  []time.Duration // by fault: virtual time when it happened
	then  []int           // by process: messages sent when the last fault happened
	reset []bool          // by process: it crashed, so its connections are reset
}

// A Result describes a run. Its lists by process have the ranks, and then the newcomers.
type Result struct {
	Hash     uint64          // of all events
	Events   int             // number of events
	Elapsed  time.Duration   // virtual time
	Errs     []error         // by process: error of its function
	Dead     []bool          // by process: it crashed, vanished, or stopped forever
	Fired    []bool          // by fault: it happened
	FiredAt  []time.Duration // by fault: virtual time when it happened
	Messages []int           // by process: frames and messages sent, and requests to the store
	Ops      int             // calls that ranks completed
	SentThen []int           // by process: Messages when the last fault happened
}

// Run simulates processes that each run body. The ranks have an engine in the group of
// all ranks. A newcomer has none, and its body runs from its time on. Run returns when
// the functions of all ranks and of all admitted newcomers have returned. It closes
// the engines when the functions return. An error means that ranks hang, that a rank
// panicked, or that an invariant of the simulated network does not hold. The result
// is then incomplete.
func Run(opt Options, body func(ctx context.Context, s *Rank) error) (*Result, error) {
	if err := opt.Fill(); err != nil {
		return nil, err
	}
	return newWorld(opt).run(body)
}

// run starts one task per process, and runs the simulator until all of them have ended
// or hang. Each task sets only its own element of res.Errs. When run returns, no
// coroutine remains.
func (w *World) run(body func(ctx context.Context, s *Rank) error) (*Result, error) {
	opt := w.opt
	first := w.newJob("world", opt.Ranks)
	for r, p := range w.procs[:opt.Ranks] {
		first.enter(p, r)
	}
	world := first.begin()
	res := &Result{
		Errs: make([]error, len(w.procs)), Dead: make([]bool, len(w.procs)), Fired: w.fired, FiredAt: w.when, SentThen: w.then,
		Messages: make([]int, len(w.procs)),
	}
	for i := range opt.Faults {
		if f := &opt.Faults[i]; f.At != 0 {
			w.s.at(int64(f.At), func() { w.fire(i, nil) })
		}
	}
	root := w.s.newContext(context.Background())
	for r, p := range w.procs {
		seat := &Rank{p: p}
		if r < opt.Ranks {
			seat.participant = first.participants[r]
			seat.Engine = seat.participant.join(world)
		}
		ctx := simrank.With(root, seat)
		w.s.spawn(p, func() {
			if p.waiting {
				_ = p.sleep(ctx, opt.Newcomers[r-opt.Ranks]) // ctx never ends
			}
			res.Errs[r] = errUnwound
			res.Errs[r] = body(ctx, seat)
			for _, m := range p.members {
				_ = m.Close() // a mesh's Close has no error
			}
			p.left = !p.dead
		})
	}
	defer w.s.drain()
	err := w.s.run(int64(opt.Limit))
	for r, p := range w.procs {
		res.Dead[r] = p.dead || p.stopped
		res.Messages[r] = p.sent
		if p.waiting && p.tasks() > 0 {
			res.Errs[r] = nil
		}
	}
	res.Ops = w.ops
	res.Hash, res.Events, res.Elapsed = uint64(w.s.log.hash), w.s.log.entries, time.Duration(w.s.now)
	return res, errors.Join(err, w.violation)
}

// errUnwound is the error of a rank whose function has not returned.
var errUnwound = errors.New("the function did not return")

// newWorld makes the processes, the network and the store of a run. opt must have
// its defaults; see Fill.
func newWorld(opt Options) *World {
	s := &sched{
		choice: rand.New(rand.NewPCG(opt.Seed, 1)), log: log{hash: engine.HashStart, out: opt.Log},
		ctxs: contexts{byDone: make(map[<-chan struct{}]*ctxGroup)},
	}
	w := &World{
		opt: opt, s: s, procs: make([]*proc, opt.processes()),
		fired: make([]bool, len(opt.Faults)), when: make([]time.Duration, len(opt.Faults)),
		then: make([]int, opt.processes()), reset: make([]bool, opt.processes()),
		net: simNetwork{
			s: s, seed: opt.Seed, rnd: rand.New(rand.NewPCG(opt.Seed, 2)),
			latency: int64(opt.Latency), bandwidth: opt.Bandwidth / 1e9,
		},
	}
	if opt.Bandwidth == 0 {
		w.net.bandwidth = defaultBandwidth
	}
	for r := range w.procs {
		w.procs[r] = &proc{w: w, rank: r, waiting: r >= opt.Ranks}
	}
	w.store = newStoreServer(w)
	return w
}

// ErrTwoSuccessors is wrapped by the error of a run in which one generation has two
// successors.
var ErrTwoSuccessors = errors.New("a generation has two successors")

// violate records that an invariant does not hold.
func (w *World) violate(err error) {
	if w.violation == nil {
		w.violation = err
	}
}

var _ simrank.Rank = (*Rank)(nil)

// A Rank is a simulated rank, or a newcomer. It is for that process's function and the tasks
// that the function starts.
type Rank struct {
	engine.Engine // in the group of all ranks; nil: a newcomer
	p             *proc
	participant   *participant // in the job of all ranks; nil: a newcomer
}

// Late reports whether the process is a newcomer.
func (s *Rank) Late() bool { return s.participant == nil }

// Admitted makes the run wait for a newcomer.
func (s *Rank) Admitted() { s.p.admit() }

// Go runs f concurrently with its caller, like a goroutine. join waits until f has
// returned.
func (s *Rank) Go(f func()) (join func()) {
	lot := wait.NewScheduledParkingLot(s.p)
	over := new(atomic.Uint64)
	s.p.Go(func() {
		f()
		over.Store(1)
		lot.Wake(over)
	})
	return func() { _, _ = wait.NewWaiter(lot).AtLeast(over, 1, nil) } // it cannot fail
}

// Now returns the virtual time.
func (s *Rank) Now() time.Time { return s.p.Now() }

// Elapsed returns the virtual time since the run began.
func (s *Rank) Elapsed() time.Duration { return time.Duration(s.p.w.s.now) }

// Host returns the process.
func (s *Rank) Host() wait.Scheduler { return s.p }

// Sleep waits for a virtual duration.
func (s *Rank) Sleep(ctx context.Context, d time.Duration) error { return s.p.sleep(ctx, d) }

// WithTimeout is context.WithTimeout in virtual time.
func (s *Rank) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return s.p.WithTimeout(ctx, d)
}
