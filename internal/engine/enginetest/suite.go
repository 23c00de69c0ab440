package enginetest

import (
	"context"
	"hash/adler32"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// World makes the engines of a new group, one per rank. The suite closes them.
type World func(tb testing.TB, ranks int) []engine.Engine

// Options say what an engine promises, and how much of the suite to run.
type Options struct {
	// RankOrder says that reductions combine elements in rank order, so that
	// results equal the sequential reference for any input. Without it, the suite
	// only uses inputs that have one result in any order.
	RankOrder bool
	// Numbers says that the engine does not define the results of Min and Max for
	// NaNs and for two zeros. Their inputs are then ordinary numbers.
	Numbers bool
	// ExactReceives says that receives need a named rank and the exact length, as those into
	// device memory do.
	ExactReceives bool
	// NCCL says that the engine has the verbs, operators and element types of NCCL alone: no Scan
	// and ExScan, no And, Or and Xor, no integers of 16 bits.
	NCCL bool
	// Light runs a sample: fewer types, sizes and numbers of ranks. It is for
	// variants of an engine that is tested in full elsewhere. The flag -short has
	// the same effect.
	Light bool
	// Ranks are the sizes of the groups, where a case can have any size. Nil: a
	// default selection.
	Ranks []int
	// Brief makes -short run one of every Brief cases. Each engine, and each
	// variant of an engine, runs other cases. Zero: 3. Engines whose groups take
	// long to make use more.
	Brief int
	// Deadline is how long one case may take before the suite treats it as hung.
	// Zero: one minute.
	Deadline time.Duration
}

// A Case is something that all ranks of a group do together.
type Case struct {
	Name  string
	Ranks int
	// Body is what one rank does.
	Body func(ctx context.Context, r *Rank) error
	// Fault, if not nil, is the failure that must occur.
	Fault *Fault
	// Note, if not nil, describes for the log what the case did.
	Note func() string
}

// Cases returns all cases, except those that Run draws at random.
func Cases(opt Options) []Case {
	var cases []Case
	cases = append(cases, sweepCases(opt)...)
	cases = append(cases, batchCases(opt)...)
	cases = append(cases, sharedCases(opt)...)
	cases = append(cases, messageCases(opt)...)
	if !opt.ExactReceives {
		cases = append(cases, receiveCases()...)
	}
	cases = append(cases, groupCases(opt)...)
	cases = append(cases, formingCases()...)
	cases = append(cases, mismatchCases(opt)...)
	cases = append(cases, endingCases(opt)...)
	cases = append(cases, giveUpCases(opt)...)
	return cases
}

// Run runs the suite, with the ranks as goroutines of this process, each case on a new group. With -short it
// runs only every opt.Brief-th case. A rank that is not done after opt.Deadline fails its case.
func Run(t *testing.T, world World, opt Options) {
	if testing.Short() {
		opt.Light = true
	}
	if opt.Deadline <= 0 {
		opt.Deadline = time.Minute
	}
	if n, err := longBatches(); err != nil {
		t.Fatal(err)
	} else if n > 0 {
		opt.Deadline = max(opt.Deadline, time.Hour)
	}
	every, first := 1, 0
	if testing.Short() {
		if every = opt.Brief; every <= 0 {
			every = 3
		}
		first = int(adler32.Checksum([]byte(t.Name())) % uint32(every))
	}
	for i, c := range Cases(opt) {
		if i%every != first {
			continue
		}
		t.Run(c.Name, func(t *testing.T) { runCase(t, world, opt, &c) })
	}
	t.Run("programs", func(t *testing.T) { runPrograms(t, world, opt) })
}
