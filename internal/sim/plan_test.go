package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/kernel"
)

// Time limits: collectives fail after planTimeout, silent connections after planHostTimeout, and
// messages of living ranks at planDeadline.
const (
	planTimeout     = 60 * time.Second
	planHostTimeout = 30 * time.Second
	planDeadline    = 3 * planTimeout
)

// A plan is what a seed determines: a network, a program for all ranks, and the
// faults.
type plan struct {
	opt     Options
	program enginetest.Program
	rnd     *rand.Rand
}

// newPlan draws the options and the program of a seed. Equal seeds give equal
// plans.
func newPlan(seed uint64) *plan {
	rnd := rand.New(rand.NewPCG(seed, 3))
	p := &plan{rnd: rnd}
	ranks := 2 + rnd.IntN(9)
	if rnd.IntN(20) == 0 {
		ranks = 11 + rnd.IntN(30)
	}
	p.opt = Options{
		Seed: seed, Ranks: ranks, Timeout: planTimeout, HostTimeout: planHostTimeout,
		Latency:   time.Duration(5+rnd.IntN(200)) * time.Microsecond,
		Bandwidth: []float64{1e8, 1e9, 12.5e9}[rnd.IntN(3)],
		Window:    []int{-1, 1, 4, 16}[rnd.IntN(4)],
		Network: network.Options{
			Segment: []int{24, 64, 1 << 10, 0}[rnd.IntN(4)], Algorithms: algorithms[rnd.IntN(len(algorithms))],
		},
	}
	p.program = p.steps(2)
	return p
}

// algorithms are sets that together contain every algorithm.
var algorithms = []network.Algorithms{
	{},
	{
		AllReduce: network.Doubling, Reduce: network.Tree, Broadcast: network.Tree, AllGather: network.Bruck,
		ReduceScatter: network.Halving, Gather: network.Tree, Scatter: network.Tree, AllToAll: network.Bruck,
		Scan: network.Doubling,
	},
	{
		AllReduce: network.Ring, Reduce: network.Ring, Broadcast: network.Chain, AllGather: network.Ring,
		ReduceScatter: network.Ring, Gather: network.Direct, Scatter: network.Direct, AllToAll: network.Direct,
		Scan: network.Chain,
	},
	{AllReduce: network.Halving, Reduce: network.Direct, ReduceScatter: network.Direct},
	{AllReduce: network.Direct, Reduce: network.Linear},
	{AllReduce: network.Bruck, Scan: network.Bruck},
}

// steps draws a program of collectives, messages and steps inside subgroups. depth
// is how many levels of subgroups it may have.
func (p *plan) steps(depth int) enginetest.Program {
	// The first step makes every rank send, so that every fault is triggered.
	program := enginetest.Program{{Ops: []enginetest.Op{{Verb: engine.Barrier}}}}
	for range 1 + p.rnd.IntN(4) {
		var s enginetest.Step
		switch k := p.rnd.IntN(8); {
		case k == 0 && depth > 0:
			s.Colours = []int{0, p.rnd.IntN(2), p.rnd.IntN(3) - 1}
			s.Backwards = p.rnd.IntN(2) == 0
			s.Inside = p.steps(depth - 1)
		case k <= 2:
			s.Backwards = p.rnd.IntN(2) == 0
			for range 1 + p.rnd.IntN(6) {
				s.Transfers = append(s.Transfers, enginetest.Transfer{
					From: p.rnd.IntN(p.opt.Ranks), To: p.rnd.IntN(p.opt.Ranks), Tag: p.rnd.IntN(2),
					Type: kernel.Int32, N: p.size(), Seed: p.rnd.Uint64(),
				})
			}
		default:
			for range 1 + p.rnd.IntN(3) {
				s.Ops = append(s.Ops, p.op())
			}
		}
		program = append(program, s)
	}
	return program
}

func (p *plan) size() int {
	if p.rnd.IntN(10) == 0 {
		return p.rnd.IntN(3000)
	}
	return p.rnd.IntN(100)
}

// op draws a collective with arguments that are valid for its verb and type.
func (p *plan) op() enginetest.Op {
	o := enginetest.Op{
		Verb: engine.AllReduce + engine.Verb(p.rnd.IntN(int(engine.Barrier))),
		Type: []kernel.DType{kernel.Int32, kernel.Float32, kernel.BFloat16, kernel.Uint64}[p.rnd.IntN(4)],
		N:    p.size(), Root: p.rnd.IntN(p.opt.Ranks), Exact: true, Seed: p.rnd.Uint64(),
	}
	if o.Verb.Reduces() {
		reds := enginetest.ReduceOpsOf(o.Verb, o.Type)
		o.ReduceOp = reds[p.rnd.IntN(len(reds))]
	}
	switch o.Verb {
	case engine.AllReduce, engine.Reduce, engine.Scan, engine.ExScan:
		o.InPlace = p.rnd.IntN(2) == 0
	case engine.AllGather, engine.ReduceScatter, engine.Gather, engine.Scatter:
		o.InPlace, o.Uneven = p.rnd.IntN(2) == 0, p.rnd.IntN(3) == 0
	case engine.AllToAll:
		o.Uneven = p.rnd.IntN(3) == 0
	}
	return o
}

// run makes all ranks run the program, with the given faults.
func (p *plan) run(faults ...Fault) (*World, *Result, error) {
	opt := p.opt
	opt.Faults = faults
	if err := opt.Fill(); err != nil {
		return nil, nil, err
	}
	w := newWorld(opt)
	ranks := enginetest.NewRankFactory()
	res, err := w.run(func(ctx context.Context, s *Rank) error {
		ctx, cancel := s.WithTimeout(ctx, planDeadline)
		defer cancel()
		return p.program.Run(ctx, ranks.Rank(s))
	})
	return w, res, err
}
