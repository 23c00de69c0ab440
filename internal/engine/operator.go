package engine

import (
	"fmt"
	"math"

	"github.com/tutti-go/tutti/internal/kernel"
)

// A ReduceOp is a reduction operator.
type ReduceOp uint8

// The operators. An operator that scales multiplies each rank's elements by a
// factor before it combines them: Avg by 1/ranks, PreMul by that rank's own
// factor.
const (
	Sum ReduceOp = iota + 1
	Prod
	Min
	Max
	Avg
	PreMul
	And
	Or
	Xor
)

// NumOps is the number of operators. They are numbered from 1.
const NumOps = int(Xor)

// A Scaling is the factor by which an operator multiplies elements.
type Scaling uint8

// The scalings.
const (
	NoScaling Scaling = iota
	ByRanks           // 1/ranks, on every rank
	ByFactor          // Call.Scale, which may differ between ranks
)

// Elements is a set of element types.
type Elements uint8

// The sets. The zero value is the empty set.
const (
	Integers Elements = 1 << iota
	Floats
	AllElements = Integers | Floats
)

// An OpInfo holds the facts about an operator that do not depend on the engine.
type OpInfo struct {
	Name     string
	Kernel   kernel.Op // combines two elements, after scaling
	Inner    ReduceOp  // the operator that combines scaled elements: itself if there is no scaling
	Scaling  Scaling
	Elements Elements // the types of elements that the operator takes
	// Rounds reports that results of floating-point elements are rounded. Then
	// their bits depend on the order of the ranks.
	Rounds bool
}

// opTable is indexed by ReduceOp. It has an entry for every value, as verbTable. Entries that
// describe no operator are zero.
var opTable = [math.MaxUint8 + 1]OpInfo{
	Sum:    {Name: "sum", Kernel: kernel.Sum, Inner: Sum, Elements: AllElements, Rounds: true},
	Prod:   {Name: "prod", Kernel: kernel.Prod, Inner: Prod, Elements: AllElements, Rounds: true},
	Min:    {Name: "min", Kernel: kernel.Min, Inner: Min, Elements: AllElements},
	Max:    {Name: "max", Kernel: kernel.Max, Inner: Max, Elements: AllElements},
	Avg:    {Name: "avg", Kernel: kernel.Sum, Inner: Sum, Elements: Floats, Scaling: ByRanks, Rounds: true},
	PreMul: {Name: "premul", Kernel: kernel.Sum, Inner: Sum, Elements: Floats, Scaling: ByFactor, Rounds: true},
	And:    {Name: "and", Kernel: kernel.And, Inner: And, Elements: Integers},
	Or:     {Name: "or", Kernel: kernel.Or, Inner: Or, Elements: Integers},
	Xor:    {Name: "xor", Kernel: kernel.Xor, Inner: Xor, Elements: Integers},
}

// Info returns the facts about the operator. An unknown operator has the zero
// OpInfo.
func (r ReduceOp) Info() *OpInfo { return &opTable[r] }

// OpNamed returns the operator with that name, or zero.
func OpNamed(name string) ReduceOp {
	for r := ReduceOp(1); r.Valid(); r++ {
		if r.Info().Name == name {
			return r
		}
	}
	return 0
}

// String returns the operator's name, such as "sum".
func (r ReduceOp) String() string {
	if name := r.Info().Name; name != "" {
		return name
	}
	return fmt.Sprintf("op %d", uint8(r))
}

// Valid reports whether r is an operator.
func (r ReduceOp) Valid() bool { return r.Info().Name != "" }

// Takes reports whether the operator takes elements of type t.
func (r ReduceOp) Takes(t kernel.DType) bool {
	if t.IsFloat() {
		return r.Info().Elements&Floats != 0
	}
	return r.Info().Elements&Integers != 0
}

// OrderMatters reports whether the bits of a result of elements of type t depend
// on the order in which the ranks are combined.
func (r ReduceOp) OrderMatters(t kernel.DType) bool { return r.Info().Rounds && t.IsFloat() }

// Scales reports whether the operator multiplies elements before it combines
// them. Callers must decide by Scales, not by the factor: ranks may have different
// factors, and all ranks must choose the same algorithm.
func (r ReduceOp) Scales() bool { return r.Info().Scaling != NoScaling }

// Factor returns the factor by which the rank multiplies its elements, in a group of
// the given number of ranks. It is 1 for a call that does not scale.
func (c *Call) Factor(ranks int) float64 {
	if !c.Scales() {
		return 1
	}
	if c.ReduceOp.Info().Scaling == ByFactor {
		return c.Scale
	}
	return 1 / float64(ranks)
}

// Scales reports whether the call multiplies elements before it combines them.
func (c *Call) Scales() bool { return c.Verb.Reduces() && c.ReduceOp.Scales() }
