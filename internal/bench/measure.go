package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-go/tutti"
)

const (
	minIters = 5
	maxIters = 100_000
	blocks   = 5  // of a point, at least: the spread of their medians is the noise
	bins     = 32 // of a histogram
)

// A runner is one rank's state in a run. Only the goroutine that calls Measure uses it.
type runner struct {
	plan *Plan
	comm *tutti.Comm
	gpu  GPU // nil: host memory
	emit func(Event) error
	// damage changes a rank's result before it is checked, in tests.
	damage func(rank int, what string, dst []byte)
	slow   func(rank int) // delays a rank, in tests

	engine   string
	memory   [2]*Memory // each as long as the longest point of this type
	dtype    tutti.DType
	patterns map[key]*pattern
}

// emitEvent emits an event on rank 0.
func (r *runner) emitEvent(e Event) error {
	if r.comm.Rank() != 0 {
		return nil
	}
	return r.emit(e)
}

// sweep measures all points once. wrong is the same on all ranks. The first error ends it; points
// before it are already emitted.
func (r *runner) sweep(ctx context.Context, list []spec, pass int) (wrong int, err error) {
	for i := range list {
		s := &list[i]
		if err := r.emitEvent(Event{Step: &Step{What: s.String(), Pass: pass, Done: i, Of: len(list)}}); err != nil {
			return wrong, err
		}
		if err := r.allocate(ctx, s, list); err != nil {
			return wrong, err
		}
		p, err := r.point(ctx, s)
		if err != nil {
			return wrong, fmt.Errorf("%v: %w", s, err)
		}
		wrong += p.Result.Wrong
		if err := r.emitEvent(Event{Point: p}); err != nil {
			return wrong, err
		}
	}
	return wrong, nil
}

// allocate replaces the memory by memory for the points of s's type, unless it has that type
// already. After an error release frees what was allocated.
func (r *runner) allocate(ctx context.Context, s *spec, list []spec) error {
	if s.elems == 0 || r.dtype == s.dtype {
		return nil
	}
	if err := r.release(); err != nil {
		return err
	}
	longest := 0
	for i := range list {
		if list[i].dtype == s.dtype {
			longest = max(longest, list[i].elems)
		}
	}
	longest *= r.plan.Batch
	for i := range r.memory {
		var err error
		if r.gpu != nil {
			r.memory[i], err = r.gpu.Alloc(s.dtype, longest)
		} else {
			r.memory[i], err = newMemory(ctx, r.comm, s.dtype, longest, r.plan.Alloc)
		}
		if err != nil {
			return err
		}
	}
	r.dtype = s.dtype
	return nil
}

// release frees the memory. All ranks have completed the last point, so no rank
// uses it any more.
func (r *runner) release() error {
	err := errors.Join(r.memory[0].free(), r.memory[1].free())
	r.memory, r.dtype = [2]*Memory{}, 0
	return err
}

// layout divides the memory among the operations of a batch.
func (r *runner) layout(s *spec) []operands {
	var all []operands
	for i := range r.plan.Batch {
		if s.elems == 0 {
			all = append(all, operands{})
			continue
		}
		x, y := r.memory[0].slice(i*s.elems, s.elems), r.memory[1].slice(i*s.elems, s.elems)
		all = append(all, s.layout(x, y, r.comm.Rank(), r.plan.InPlace))
	}
	return all
}

// point measures one point. It checks the results before the timing and once after it. Wrong
// results are counted in the Point; an error ends the run.
func (r *runner) point(ctx context.Context, s *spec) (*Point, error) {
	all := r.layout(s)
	run := s.iteration(r.comm, all)
	p := r.pattern(s)
	var w Wrong
	if err := r.prepare(s, p, all); err != nil {
		return nil, err
	}
	if err := run(ctx); err != nil {
		return nil, err
	}
	if err := r.check(s, p, all, &w); err != nil {
		return nil, err
	}
	// An operation that destroys its input is repeated on zeros. All others work on
	// the pattern, and their last timed result is checked.
	destroyed := s.destroysInput(r.plan.InPlace)
	if destroyed {
		if err := r.clear(s); err != nil {
			return nil, err
		}
	} else if err := r.prepare(s, p, all); err != nil {
		return nil, err
	}
	point, err := r.time(ctx, s, run, all)
	if err != nil {
		return nil, err
	}
	if destroyed {
		if err := r.prepare(s, p, all); err != nil {
			return nil, err
		}
		if err := run(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.check(s, p, all, &w); err != nil {
		return nil, err
	}
	return point, r.collect(ctx, s, point, &w)
}

// pattern returns the values for a point; all its sizes have the same.
func (r *runner) pattern(s *spec) *pattern {
	k := key{dtype: s.dtype.String(), reduce: s.reduce}
	if r.patterns[k] == nil {
		r.patterns[k] = newPattern(s.dtype, s.reduce, r.comm.Size())
	}
	return r.patterns[k]
}

// prepare writes sources, and fills destinations with a value that no result has. With a GPU it
// also copies both to the device.
func (r *runner) prepare(s *spec, p *pattern, all []operands) error {
	if s.elems == 0 {
		return nil
	}
	rank, size := r.comm.Rank(), s.dtype.Size()
	for _, on := range all {
		if on.dst != nil {
			poison(on.dst.Bytes)
		}
		if on.src != nil && (!s.op.verb.Info().InPlace || rank == root) {
			fill(on.src.Bytes, p.source(rank), size, 0)
		}
	}
	return r.push(s)
}

// used returns how many bytes of the memory a point uses.
func (r *runner) used(s *spec) int { return r.plan.Batch * s.bytes() }

func (r *runner) push(s *spec) error {
	return errors.Join(r.memory[0].push(r.used(s)), r.memory[1].push(r.used(s)))
}

// clear writes zeros to the memory of a point.
func (r *runner) clear(s *spec) error {
	for _, m := range r.memory {
		clear(m.Bytes[:r.used(s)])
	}
	return r.push(s)
}

// check adds this rank's wrong results to w. A wrong result is no error; a failed copy from the
// device is.
func (r *runner) check(s *spec, p *pattern, all []operands, w *Wrong) error {
	if s.elems == 0 {
		return nil
	}
	rank := r.comm.Rank()
	if err := errors.Join(r.memory[0].pull(r.used(s)), r.memory[1].pull(r.used(s))); err != nil {
		return err
	}
	for _, on := range all {
		if on.dst == nil {
			continue
		}
		if r.damage != nil {
			r.damage(rank, s.String(), on.dst.Bytes)
		}
		p.check(on.dst.Bytes, s.regions(p, rank), w)
	}
	return nil
}

// collect gathers the wrong elements of all ranks into p, the same on all ranks. All ranks call it
// together, also without wrong elements.
func (r *runner) collect(ctx context.Context, s *spec, p *Point, w *Wrong) error {
	var mine []byte
	if w.Count > 0 {
		w.What, w.Rank = s.String(), r.comm.Rank()
		var err error
		if mine, err = json.Marshal(w); err != nil {
			return err
		}
	}
	all, err := tutti.AllGatherSlices(ctx, r.comm, mine)
	if err != nil {
		return err
	}
	for _, text := range all {
		if len(text) == 0 {
			continue
		}
		var w Wrong
		if err := json.Unmarshal(text, &w); err != nil {
			return err
		}
		p.Wrongs = append(p.Wrongs, w)
		p.Result.Wrong += w.Count
	}
	return nil
}

// time times a point, after the warm-up. All ranks return the same result. Noise is that of this
// rank, and so is the histogram of an operation that synchronizes.
func (r *runner) time(ctx context.Context, s *spec, run func(context.Context) error, all []operands) (*Point, error) {
	each := r.plan.Budget // upper bound without a measurement
	for range r.plan.Warmup {
		begin := time.Now()
		if err := run(ctx); err != nil {
			return nil, err
		}
		each = min(each, time.Since(begin)) // the first operation can take long
	}
	ahead, err := r.window(ctx, s, each, all)
	if err != nil {
		return nil, err
	}
	if ahead > 1 {
		run = s.startAhead(r.comm, all, ahead)
		if err := run(ctx); err != nil {
			return nil, err
		}
	}
	times, medians, err := r.iterate(ctx, s, (r.plan.Iters+ahead-1)/ahead, run)
	if err != nil {
		return nil, err
	}
	for i := range times {
		times[i] /= int64(r.plan.Batch * ahead)
	}
	own := slices.Clone(times)
	slices.Sort(own)
	p := &Point{Ranks: make([]float64, r.comm.Size())}
	mine := []float64{micro(sortedMedian(own))}
	if err := r.comm.AllGather(ctx, tutti.Of(p.Ranks), tutti.Of(mine)); err != nil {
		return nil, err
	}
	three := []float64{micro(sortedMedian(own)), micro(percentile(own, 99)), micro(own[0])}
	if s.op.verb.Synchronizes() {
		// All ranks are about as slow as the slowest rank.
		if err := r.comm.AllReduce(ctx, tutti.Of(three), tutti.Max); err != nil {
			return nil, err
		}
	} else {
		// An operation has completed when it has completed on its last rank.
		if err := r.comm.AllReduce(ctx, tutti.Of(times), tutti.Max); err != nil {
			return nil, err
		}
		slices.Sort(times)
		own = times
		three = []float64{micro(sortedMedian(own)), micro(percentile(own, 99)), micro(own[0])}
	}
	for i := range p.Ranks {
		p.Ranks[i] = digits(p.Ranks[i], 5)
	}
	p.Noise = digits(spread(medians), 3)
	p.histogram(own)
	p.Result = Result{
		Op: s.op.name, Engine: r.engine, Ranks: r.comm.Size(), Bytes: s.bytes(), DType: s.dtype.String(), Reduce: s.reduce,
		Iters: len(times) * ahead, P50: three[0], P99: three[1], Min: three[2],
	}
	p.Result.rates(s.op)
	return p, nil
}

// iterate times iterations on this rank, in nanoseconds, in blocks whose length
// rank 0 decides. It runs as many as wanted, or, if wanted is 0, as many as there
// is time for. It also returns the medians of the blocks.
func (r *runner) iterate(ctx context.Context, s *spec, wanted int, run func(context.Context) error) (times, medians []int64, err error) {
	begin := time.Now()
	for {
		n, err := r.next(ctx, wanted, len(times), time.Since(begin))
		if err != nil {
			return nil, nil, err
		}
		if n == 0 {
			return times, medians, nil
		}
		first := len(times)
		times, err = s.op.loop(ctx, r.comm, n, times, func(ctx context.Context) error {
			r.delay()
			return run(ctx)
		})
		if err != nil {
			return nil, nil, err
		}
		block := slices.Clone(times[first:])
		slices.Sort(block)
		medians = append(medians, sortedMedian(block))
	}
}

// delay delays a rank in tests.
func (r *runner) delay() {
	if r.slow != nil {
		r.slow(r.comm.Rank())
	}
}

// next returns how many iterations follow. Rank 0 decides: enough for the wanted
// number, or for the remaining time.
func (r *runner) next(ctx context.Context, wanted, done int, took time.Duration) (int, error) {
	n := 0
	switch {
	case wanted > 0:
		n = min(wanted-done, (wanted+blocks-1)/blocks)
	case done == 0:
		n = 1
	case done < minIters || took < r.plan.Budget && done < maxIters:
		each := max(took/time.Duration(done), 1)
		n = min(max(int(r.plan.Budget/blocks/each), 1), maxIters-done, 4*done)
	}
	number := []int32{int32(n)}
	err := r.comm.Broadcast(ctx, tutti.Of(number), 0)
	return int(number[0]), err
}

// histogram counts sorted times between their 1st and 99.9th percentile.
func (p *Point) histogram(sorted []int64) {
	low, high := max(sorted[0], 1), sorted[len(sorted)*999/1000]
	p.Low, p.High = micro(low), micro(max(high, low+1))
	p.Bins = make([]int64, bins)
	for _, t := range sorted {
		p.Bins[binOf(float64(max(t, 1)), float64(low), float64(max(high, low+1)))]++
	}
}
