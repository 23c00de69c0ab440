package tuttitest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/clock"
)

// An elasticProgram continues after losses. Its ranks add to a running sum, among
// other operations, and shrink when an operation fails, until all remaining ranks
// agree that all steps are done. It records the state of each rank, so that the
// ranks can be compared. The records need no lock, because the simulator runs one
// rank at a time. Ranks are numbered as at the beginning.
type elasticProgram struct {
	seed    uint64
	steps   int
	abort   int // step before which a rank calls Abort; -1: none
	aborter int

	generations map[string][]int          // by generation: its members, as the first rank recorded them
	done        map[string]uint64         // by generation: the number that was agreed on at its end
	progress    map[string]map[int]uint64 // by generation and rank: the progress at that time
	endings     []*ending                 // by rank; nil: it has not completed the program
	shrunk      int                       // number of Comms made by Shrink
	violation   error
}

// An ending is the result of a rank that has completed the program.
type ending struct {
	generation string
	took       []step
}

// A step counts when all ranks have completed its last operation.
type step struct {
	generation string
	seq        uint64
	sum        int64
}

func newElasticProgram(seed uint64, ranks int) *elasticProgram {
	rnd := rand.New(rand.NewPCG(seed, 5))
	l := &elasticProgram{seed: seed, steps: 2 + rnd.IntN(6), abort: -1}
	if rnd.IntN(4) == 0 {
		l.abort, l.aborter = rnd.IntN(l.steps), rnd.IntN(ranks)
	}
	return l
}

// begin resets the records for a new run.
func (l *elasticProgram) begin(ranks int) {
	l.generations, l.done, l.progress = make(map[string][]int), make(map[string]uint64), make(map[string]map[int]uint64)
	l.endings, l.violation, l.shrunk = make([]*ending, ranks), nil, 0
}

// errDisagree is wrapped by errors about ranks that disagree.
var errDisagree = errors.New("the ranks do not agree")

// violate records the first violation of an invariant.
func (l *elasticProgram) violate(format string, args ...any) {
	if l.violation == nil {
		l.violation = fmt.Errorf("%w: "+format, append([]any{errDisagree}, args...)...)
	}
}

// value returns what a rank adds in a step.
func (l *elasticProgram) value(id, step int) int64 {
	return int64(id+1)*1_000_003 + int64(step)*int64(l.seed%1000+7)
}

// A rankRun is the state of one rank.
type rankRun struct {
	*elasticProgram
	id         int
	c          *tutti.Comm
	generation string
	ids        []int  // members of the Comm; nil: not known yet
	seq        uint64 // number of completed operations on the Comm
	took       []step
}

// rankMain is a rank's function. A failed operation makes the rank shrink, and is
// not an error. rankMain returns the error of Agree or Shrink, or that of a wrong
// result.
func (l *elasticProgram) rankMain(ctx context.Context, c *tutti.Comm) error {
	s := &rankRun{elasticProgram: l, id: c.Rank(), c: c, generation: c.Stats().Comm}
	for r := range c.Size() {
		s.ids = append(s.ids, r)
	}
	for {
		err := s.work(ctx)
		var wrong errWrong
		if errors.As(err, &wrong) {
			return err
		}
		over, e := s.c.Agree(ctx, err == nil)
		if e != nil {
			return errors.Join(e, s.c.Close())
		}
		if over {
			if err != nil {
				l.violate("rank %d: all have agreed that it has finished, but %w", s.id, err)
			}
			l.endings[s.id] = &ending{s.generation, s.took}
			_ = s.c.Close() // a rank may be lost after the agreement
			return nil
		}
		if err := s.shrink(ctx); err != nil {
			return errors.Join(err, s.c.Close())
		}
	}
}

// errWrong is the error of a wrong result.
type errWrong struct{ error }

func wrongf(format string, args ...any) error { return errWrong{fmt.Errorf(format, args...)} }

// op counts an operation.
func (s *rankRun) op(err error) error {
	if err == nil {
		s.seq++
	}
	return err
}

// work does the remaining steps. It returns the first error of an operation, or an
// errWrong for a wrong result; s.took has the steps that are done.
func (s *rankRun) work(ctx context.Context) error {
	if s.ids == nil {
		if err := s.exchangeIDs(ctx); err != nil {
			return err
		}
	}
	for k := len(s.took); k < s.steps; k++ {
		if k == s.abort && s.id == s.aborter && s.generation == "world" {
			s.c.Abort(errors.New("the seed wants it"))
		}
		rnd := rand.New(rand.NewPCG(s.seed, 100+uint64(k)))
		if err := s.randomOp(ctx, rnd, k); err != nil {
			return err
		}
		sum := make([]int64, 1+rnd.IntN(40)*rnd.IntN(2))
		want := int64(0)
		for i := range sum {
			sum[i] = s.value(s.id, k) + int64(i)
		}
		for _, id := range s.ids {
			want += s.value(id, k)
		}
		if err := s.op(s.c.AllReduce(ctx, tutti.Of(sum), tutti.Sum)); err != nil {
			return err
		}
		for i, v := range sum {
			if w := want + int64(i*len(s.ids)); v != w {
				return wrongf("generation %s, step %d: element %d of the sum is %d, want %d", s.generation, k, i, v, w)
			}
		}
		s.took = append(s.took, step{s.generation, s.seq, want})
	}
	return nil
}

// randomOp runs another operation, the same on all ranks, and checks its result. It
// returns the error of the operation, or an errWrong.
func (s *rankRun) randomOp(ctx context.Context, rnd *rand.Rand, k int) error {
	n, me := s.c.Size(), s.c.Rank()
	root := rnd.IntN(n)
	mark := s.value(s.ids[root], k) // differs between generations
	for _, b := range []byte(s.generation) {
		mark = mark*31 + int64(b)
	}
	switch rnd.IntN(6) {
	case 0:
		all := make([]int64, n)
		if err := s.op(s.c.AllGather(ctx, tutti.Of(all), tutti.Of([]int64{s.value(s.id, k)}))); err != nil {
			return err
		}
		for r, v := range all {
			if want := s.value(s.ids[r], k); v != want {
				return wrongf("generation %s, step %d: rank %d gave %d, want %d", s.generation, k, r, v, want)
			}
		}
	case 1:
		buf := make([]int64, 1+rnd.IntN(500))
		if me == root {
			for i := range buf {
				buf[i] = mark + int64(i)
			}
		}
		if err := s.op(s.c.Broadcast(ctx, tutti.Of(buf), root)); err != nil {
			return err
		}
		for i, v := range buf {
			if v != mark+int64(i) {
				return wrongf("generation %s, step %d: element %d of a broadcast is %d", s.generation, k, i, v)
			}
		}
	case 2:
		in, from := []int64{-1}, (me+n-1)%n
		ctx, cancel := clock.WithTimeout(ctx, time.Minute) // a rank that is stalled for good does not answer
		defer cancel()
		if err := s.c.SendRecv(ctx, (me+1)%n, tutti.Of([]int64{mark + int64(me)}), from, tutti.Of(in), k); err != nil {
			return err
		}
		if in[0] != mark+int64(from) {
			return wrongf("generation %s, step %d: a message of rank %d is %d", s.generation, k, from, in[0])
		}
	case 3:
		a, b := []int32{int32(me)}, []float64{float64(me)}
		w, err := s.c.Batch().AllReduce(tutti.Of(a), tutti.Max).AllReduce(tutti.Of(b), tutti.Min).Start(ctx)
		if err == nil {
			err = s.op(w.Wait(ctx))
		}
		if err != nil {
			return err
		}
		if a[0] != int32(n-1) || b[0] != 0 {
			return wrongf("generation %s, step %d: a batch gave %d and %v", s.generation, k, a[0], b[0])
		}
	case 4:
		return s.useSubgroup(ctx, k)
	default:
		mine := make([]int64, 1+rnd.IntN(5000))
		for i := range mine {
			mine[i] = mark + int64(me)
		}
		upTo := make([]int64, len(mine))
		if err := s.op(s.c.Scan(ctx, tutti.Of(upTo), tutti.Of(mine), tutti.Sum)); err != nil {
			return err
		}
		for i, v := range upTo {
			if want := mark*int64(me+1) + int64(me*(me+1)/2); v != want {
				return wrongf("generation %s, step %d: element %d of a scan is %d, want %d", s.generation, k, i, v, want)
			}
		}
	}
	return nil
}

// useSubgroup runs an operation in a group of its own.
func (s *rankRun) useSubgroup(ctx context.Context, k int) error {
	sub, err := s.c.Split(ctx, s.id%2, 0)
	if s.op(err) != nil {
		return err
	}
	want := int64(0)
	for _, id := range s.ids {
		if id%2 == s.id%2 {
			want += s.value(id, k)
		}
	}
	got, err := tutti.AllReduceValue(ctx, sub, s.value(s.id, k), tutti.Sum)
	if err == nil && got != want {
		err = wrongf("generation %s, step %d: the sum of a group is %d, want %d", s.generation, k, got, want)
	}
	return errors.Join(err, sub.Close())
}

// shrink continues with the remaining ranks: it replaces s.c and drops the steps
// that not all of them have completed. If it returns an error of Shrink, s.c is
// still the old Comm.
func (s *rankRun) shrink(ctx context.Context) error {
	if s.progress[s.generation] == nil {
		s.progress[s.generation] = make(map[int]uint64)
	}
	s.progress[s.generation][s.id] = s.seq
	next, done, err := s.c.Shrink(ctx)
	if errors.Is(err, tutti.ErrAborted) { // the connection to the store broke
		next, done, err = s.c.Shrink(ctx)
	}
	if err != nil {
		return err
	}
	s.shrunk++
	if first, known := s.done[s.generation]; known && first != done {
		s.violate("rank %d: generation %s ended with operation %d, but others were told %d", s.id, s.generation, done, first)
	}
	if done > s.seq {
		s.violate("rank %d: generation %s ended with operation %d, but this rank had completed %d", s.id, s.generation, done, s.seq)
	}
	s.done[s.generation] = done
	if err := s.c.Close(); err != nil {
		return err
	}
	for n := len(s.took); n > 0 && s.took[n-1].generation == s.generation && s.took[n-1].seq > done; n = len(s.took) {
		s.took = s.took[:n-1]
	}
	s.c, s.seq, s.generation, s.ids = next, 0, next.Stats().Comm, nil
	return nil
}

// exchangeIDs finds out which ranks are in a new Comm. A difference from the
// members that another rank recorded is a violation.
func (s *rankRun) exchangeIDs(ctx context.Context) error {
	ids := make([]int, s.c.Size())
	if err := s.op(s.c.AllGather(ctx, tutti.Of(ids), tutti.Of([]int{s.id}))); err != nil {
		return err
	}
	s.ids = ids
	if !slices.IsSorted(ids) || ids[s.c.Rank()] != s.id {
		s.violate("rank %d: generation %s has the ranks %v", s.id, s.generation, ids)
	}
	if first, known := s.generations[s.generation]; known && !slices.Equal(first, ids) {
		s.violate("rank %d: generation %s has the ranks %v, others saw %v", s.id, s.generation, ids, first)
	}
	s.generations[s.generation] = ids
	return nil
}
