package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// The engines that can be requested.
const (
	Auto   = "auto"
	Local  = "local"
	Shm    = "shm"
	TCP    = "tcp"
	Hier   = "hier"
	NCCL   = "nccl"
	Staged = "staged"
)

// Engines lists the engines.
var Engines = []string{Auto, Local, Shm, TCP, Hier, NCCL, Staged}

// A Plan is what to measure, the same on all ranks. Ranks pass it on as JSON.
type Plan struct {
	Ranks   int // only used by Start and RunLocal
	Ops     []string
	DTypes  []string
	Reduces []string
	Sizes   []int // bytes, ascending
	Engine  string
	Iters   int // of a point; 0 means as many as fit into Budget
	Warmup  int
	Batch   int // operations that are submitted together
	Ahead   int // operations in flight; 0 means the engine's default
	Alloc   bool
	InPlace bool
	Pairs   bool
	Budget  time.Duration // for timing one point
	// Duration is the total time, pass after pass; 0 means one pass.
	Duration time.Duration
}

// device reports whether the ranks use GPU memory.
func (p *Plan) device() bool { return p.Engine == NCCL || p.Engine == Staged }

// minRanks returns the smallest useful number of ranks.
func (p *Plan) minRanks() int {
	if p.Engine == Hier {
		return 3
	}
	return 1
}

// maxSum is the largest integer up to which all integers are exact in every type.
// bfloat16 is the least precise.
const maxSum = 256

// validate returns an error for a plan that cannot be measured, or whose results could not be
// checked.
func (p *Plan) validate() error {
	switch {
	case p.Ranks < p.minRanks():
		return fmt.Errorf("%d ranks; engine %s needs %d at least", p.Ranks, p.Engine, p.minRanks())
	case p.Ranks > 2*maxSum:
		return fmt.Errorf("%d ranks; sums of more than %d cannot be checked exactly in every type", p.Ranks, 2*maxSum)
	case p.Iters < 0 || p.Warmup < 0 || p.Duration < 0:
		return errors.New("iters, warmup and duration must not be negative")
	case p.Batch < 1:
		return fmt.Errorf("--batch is %d; it must be 1 or more", p.Batch)
	case p.Ahead < 0:
		return fmt.Errorf("--ahead is %d; it must not be negative", p.Ahead)
	case p.Alloc && (p.Engine == TCP || p.device()):
		return fmt.Errorf("--alloc is memory that ranks of a host share; engine %s does not use it", p.Engine)
	case !slices.Contains(Engines, p.Engine):
		return fmt.Errorf("there is no engine %q: %s", p.Engine, strings.Join(Engines, ", "))
	}
	for _, name := range p.Ops {
		if opNamed(name).reduces() && !p.reducible() {
			return errors.New("reductions avg and premul are for floating-point types, and, or and xor for integers, and --dtype has no such type")
		}
	}
	if !slices.ContainsFunc(p.Ops, p.measurable) {
		return errors.New("nothing of --op can be measured: scan and exscan have no avg; " +
			"NCCL has no scan and exscan, no and, or and xor, no int16 and uint16")
	}
	return nil
}

// A spec is one point of the sweep.
type spec struct {
	op     *op
	dtype  tutti.DType
	reduce string // "none" where nothing is reduced
	part   int    // elements of one rank's share of a divided buffer
	elems  int    // elements of the larger buffer
}

func (s *spec) bytes() int { return s.elems * s.dtype.Size() }

func (s *spec) String() string {
	text := s.op.name
	if s.elems > 0 {
		text += " " + byteText(s.bytes()) + " " + s.dtype.String()
	}
	if s.op.reduces() {
		text += " " + s.reduce
	}
	return text
}

// specs lists the points of one pass for a number of ranks, the same on all ranks. It leaves out
// combinations that a Comm does not support, and sizes that are equal after rounding.
func (p *Plan) specs(ranks int) []spec {
	var list []spec
	for _, name := range p.Ops {
		o := opNamed(name)
		if name == "sendrecv" && (p.device() || ranks < 2 || p.InPlace) {
			continue // messages use host memory and two ranks
		}
		if name == "barrier" {
			list = append(list, spec{op: o, reduce: none})
			continue
		}
		for _, d := range p.DTypes {
			for _, red := range p.reduces(o) {
				if !p.supports(o, d, red) {
					continue
				}
				last := 0
				for _, bytes := range p.Sizes {
					s := spec{op: o, dtype: dtypeNamed(d), reduce: red}
					s.elems = max(1, bytes/s.dtype.Size())
					if o.divided() {
						s.part = max(1, s.elems/ranks)
						s.elems = s.part * ranks
					}
					if s.elems != last {
						list = append(list, s)
					}
					last = s.elems
				}
			}
		}
	}
	return list
}

func (p *Plan) reduces(o *op) []string {
	if o.reduces() {
		return p.Reduces
	}
	return []string{none}
}

const none = "none"

// dtypeNamed returns the type with a name, or none.
func dtypeNamed(name string) tutti.DType {
	for t := tutti.Int8Type; kernel.DType(t).Valid(); t++ {
		if t.String() == name {
			return t
		}
	}
	return 0
}

// DTypeNames lists the element types.
func DTypeNames() (names []string) {
	for t := tutti.Int8Type; kernel.DType(t).Valid(); t++ {
		names = append(names, t.String())
	}
	return names
}

// reducible reports whether a Comm supports a reduction on a type.
func reducible(dtype, reduce string) bool {
	return engine.OpNamed(reduce).Takes(kernel.DType(dtypeNamed(dtype)))
}

// supports reports whether an operation supports a type and a reduction, which is none if it does not reduce.
func (p *Plan) supports(o *op, dtype, reduce string) bool {
	if p.Engine == NCCL && !inNCCL(o, dtype, reduce) {
		return false
	}
	return reduce == none || reducible(dtype, reduce) && o.verb.Accepts(engine.OpNamed(reduce))
}

// inNCCL reports whether NCCL has an operation with a type and a reduction.
func inNCCL(o *op, dtype, reduce string) bool {
	return o.verb.Info().Prefix == engine.NoPrefix && !slices.Contains([]string{"int16", "uint16"}, dtype) &&
		!slices.Contains([]string{"and", "or", "xor"}, reduce)
}

// reducible reports whether any of the plan's reductions supports any of its types.
func (p *Plan) reducible() bool {
	for _, d := range p.DTypes {
		if slices.ContainsFunc(p.Reduces, func(red string) bool { return reducible(d, red) }) {
			return true
		}
	}
	return false
}

// measurable reports whether an operation supports any of the plan's types and reductions.
func (p *Plan) measurable(name string) bool {
	o := opNamed(name)
	if name == "barrier" {
		return true
	}
	for _, d := range p.DTypes {
		if slices.ContainsFunc(p.reduces(o), func(red string) bool { return p.supports(o, d, red) }) {
			return true
		}
	}
	return false
}

// preMul is the factor of the reduction "premul".
const preMul = 2

// reductions lists the reductions, as they are measured.
var reductions = []tutti.Op{tutti.Sum, tutti.Prod, tutti.Min, tutti.Max, tutti.Avg, tutti.PreMul(preMul), tutti.And, tutti.Or, tutti.Xor}

// reduceName returns the name of a reduction, without its factor.
func reduceName(op tutti.Op) string {
	name, _, _ := strings.Cut(op.String(), "(")
	return name
}

// reduceNamed returns the reduction with that name, or the zero Op.
func reduceNamed(name string) tutti.Op {
	for _, op := range reductions {
		if reduceName(op) == name {
			return op
		}
	}
	return tutti.Op{}
}

// ReduceNames lists the names of the reductions.
func ReduceNames() (names []string) {
	for _, op := range reductions {
		names = append(names, reduceName(op))
	}
	return names
}
