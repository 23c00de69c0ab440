package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti"
)

// This file and bench/peers/mpi.c measure in the same way; package peers describes
// it.

const (
	minIters = 5
	maxIters = 100_000
)

// A bench is one operation of one size on this rank.
type bench[T float32 | tutti.BFloat16] struct {
	comm     *tutti.Comm
	op       string
	from     func(float32) T
	n        int // elements in the larger buffer, or in a message
	part     int // elements in one rank's part of the larger buffer
	group    int // exchanges of messages in one iteration
	src, dst []T
	limit    time.Duration // the time for one size; 0 means no limit
	run      func(ctx context.Context) error
}

// measure measures one size, and prints the result on rank 0. All ranks call it together. It checks
// the operation's results before and after the timed iterations. The first error ends it on this
// rank, which then exits without Close, so that the other ranks fail too.
func measure[T float32 | tutti.BFloat16](ctx context.Context, comm *tutti.Comm, job rankJob, bytes int, from func(float32) T) (err error) {
	var zero T
	n, ranks := bytes/int(unsafe.Sizeof(zero)), comm.Size()
	b := &bench[T]{comm: comm, op: job.Op, from: from, n: n, part: (n + ranks - 1) / ranks, group: groupOf(bytes)}
	switch job.Op {
	case "allgather", "reducescatter", "alltoall":
		b.n = b.part * ranks
	}
	free, err := b.prepare(ctx, job.Alloc)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free()) }()

	if err := b.check(ctx); err != nil {
		return err
	}
	clear(b.src)
	clear(b.dst)
	iters, err := b.calibrate(ctx, job.Budget)
	if err != nil {
		return err
	}
	b.limit = job.Budget
	if job.Iters > 0 {
		iters, b.limit = job.Iters, 0
	}
	timed := b.untilAllDone
	if b.waitsForPeers() {
		timed = b.backToBack
	}
	all, err := timed(ctx, iters)
	if err != nil {
		return err
	}
	if comm.Rank() == 0 {
		for _, s := range all {
			s.bytes = bytes
			fmt.Println(s)
		}
	}
	return b.check(ctx)
}

// waitsForPeers reports whether no rank can run ahead of the ranks that it exchanges data with.
func (b *bench[T]) waitsForPeers() bool { return b.op == "allreduce" || isMessage(b.op) }

// prepare makes the buffers and the call, and returns how to free them. After an error nothing is
// left to free.
func (b *bench[T]) prepare(ctx context.Context, alloc bool) (free func() error, err error) {
	from, to := b.n, b.n
	if b.op == "rate" {
		from, to = windowSizes(b.n)
	}
	if !alloc || b.n == 0 {
		b.src, b.dst = make([]T, from), make([]T, to)
		b.run = b.operation(tutti.Of(b.src), tutti.Of(b.dst))
		return func() error { return nil }, nil
	}
	src, err := tutti.Alloc[T](ctx, b.comm, from)
	if err != nil {
		return nil, err
	}
	dst, err := tutti.Alloc[T](ctx, b.comm, to)
	if err != nil {
		return nil, errors.Join(err, src.Free())
	}
	b.src, b.dst = src.Slice(), dst.Slice()
	b.run = b.operation(src.Buffer(), dst.Buffer())
	return func() error { return errors.Join(src.Free(), dst.Free()) }, nil
}

// operation returns the call that is measured, on src and dst. All ranks must make it.
func (b *bench[T]) operation(src, dst tutti.Buffer) func(ctx context.Context) error {
	c, part := b.comm, b.part
	switch b.op {
	case "allreduce":
		return func(ctx context.Context) error { return c.AllReduce(ctx, dst, tutti.Sum) }
	case "broadcast":
		return func(ctx context.Context) error { return c.Broadcast(ctx, dst, 0) }
	case "allgather":
		return func(ctx context.Context) error { return c.AllGather(ctx, dst, src.Slice(0, part)) }
	case "reducescatter":
		return func(ctx context.Context) error { return c.ReduceScatter(ctx, dst.Slice(0, part), src, tutti.Sum) }
	case "alltoall":
		return func(ctx context.Context) error { return c.AllToAll(ctx, dst, src) }
	case "reduce":
		if c.Rank() != 0 {
			dst = tutti.Buffer{}
		}
		return func(ctx context.Context) error { return c.Reduce(ctx, dst, src, tutti.Sum, 0) }
	case "scan":
		return func(ctx context.Context) error { return c.Scan(ctx, dst, src, tutti.Sum) }
	case "exscan":
		return func(ctx context.Context) error { return c.ExScan(ctx, dst, src, tutti.Sum) }
	case "sendrecv":
		return b.sendRecv(src, dst)
	case "pingpong":
		return b.pingPong(src, dst)
	case "rate":
		return b.window(src, dst)
	default:
		return c.Barrier
	}
}

// value is element i of rank r's source, sum is element i of the sum of the sources
// of the first n ranks, and expect is element i of the result on this rank.
func value(i, r int) float32 { return float32(i%13 + r) }

func sum(i, n int) float32 {
	return float32(n*(i%13) + n*(n-1)/2)
}

// expect returns element i of the correct result on this rank.
func (b *bench[T]) expect(i int) float32 {
	mine := b.comm.Rank() * b.part
	switch b.op {
	case "broadcast":
		return value(i, 0)
	case "allgather":
		return value(i%b.part, i/b.part)
	case "reducescatter":
		return sum(mine+i, b.comm.Size())
	case "alltoall":
		return value(mine+i%b.part, i/b.part)
	case "scan":
		return sum(i, b.comm.Rank()+1)
	case "exscan":
		return sum(i, b.comm.Rank())
	case "sendrecv", "pingpong":
		return value(i, b.peer())
	case "rate":
		return value(i%b.n+i/b.n*windowSpacing, b.peer())
	default:
		return sum(i, b.comm.Size())
	}
}

// check runs the operation once on known values, on all ranks. It returns an error for the first
// wrong element of this rank; other ranks do not see that error.
func (b *bench[T]) check(ctx context.Context) error {
	rank := b.comm.Rank()
	for i := range b.src {
		b.src[i] = b.from(value(i, rank))
	}
	for i := range b.dst {
		b.dst[i] = b.from(-1)
		if b.op == "allreduce" || b.op == "broadcast" {
			b.dst[i] = b.src[i]
		}
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	results := b.dst
	switch {
	case b.op == "reducescatter":
		results = b.dst[:b.part]
	case b.op == "reduce" && rank != 0, b.op == "exscan" && rank == 0, b.op == "rate" && b.sends():
		results = nil
	}
	for i, got := range results {
		if want := b.from(b.expect(i)); got != want {
			return fmt.Errorf("rank %d, element %d of %d: %v instead of %v", rank, i, len(results), got, want)
		}
	}
	return nil
}

// calibrate warms up and returns how many iterations fit into the budget, by the median of the last
// three batches. A single slow batch must not reduce the number to a few. Rank 0 decides, and
// broadcasts the number after each batch, so that all ranks return the same one.
func (b *bench[T]) calibrate(ctx context.Context, budget time.Duration) (int, error) {
	var total time.Duration
	var mean [3]float64
	for k := 0; ; k++ {
		batch := 1 << k
		start := time.Now()
		for range batch {
			if !b.waitsForPeers() {
				if err := b.comm.Barrier(ctx); err != nil {
					return 0, err
				}
			}
			if err := b.run(ctx); err != nil {
				return 0, err
			}
		}
		took := time.Since(start)
		total += took
		mean[k%3] = float64(took) / float64(batch)
		var fit [1]float64
		if total >= budget/4 && k >= 2 {
			last := mean
			slices.Sort(last[:])
			fit[0] = float64(budget) / last[1]
		}
		if err := b.comm.Broadcast(ctx, tutti.Of(fit[:]), 0); err != nil {
			return 0, err
		}
		if fit[0] > 0 {
			return int(min(max(fit[0], minIters), maxIters)), nil
		}
	}
}

// overBudget reports whether a busy machine has made a loop take twice its budget;
// the ranks agree on it. Each loop calls it ten times.
func (b *bench[T]) overBudget(ctx context.Context, start time.Time) (bool, error) {
	var over [1]int32
	if b.limit > 0 && time.Since(start) > 2*b.limit {
		over[0] = 1
	}
	err := b.comm.Broadcast(ctx, tutti.Of(over[:]), 0)
	return over[0] == 1, err
}

// backToBack times each iteration from return to return, on every rank, and returns the samples of
// all ranks, or for messages one sample of all pairs. overBudget ends the loop early, after the same
// iteration on all ranks.
func (b *bench[T]) backToBack(ctx context.Context, iters int) ([]sample, error) {
	times := make([]int64, iters)
	if err := b.comm.Barrier(ctx); err != nil {
		return nil, err
	}
	start, last := time.Now(), int64(0)
	done, over, block := 0, false, iters/10+1
	for done < iters && !over {
		err := b.run(ctx)
		end := int64(time.Since(start))
		times[done] = end - last
		last = end
		if done++; err == nil && done%block == 0 {
			over, err = b.overBudget(ctx, start)
			last = int64(time.Since(start))
		}
		if err != nil {
			return nil, err
		}
	}
	mine := summary(times[:done], last).divided(b.messages())
	numbers := []float64{mine.p50, mine.p99, mine.p999, mine.min, mine.perSecond}
	everybody, err := tutti.AllGatherSlices(ctx, b.comm, numbers)
	all := make([]sample, 0, len(everybody))
	for r, s := range everybody {
		all = append(all, sample{rank: r, iters: done, p50: s[0], p99: s[1], p999: s[2], min: s[3], perSecond: s[4]})
	}
	if err == nil && isMessage(b.op) {
		all = []sample{combinePairs(b.op, all)}
	}
	return all, err
}

// untilAllDone times each iteration from the last start to the last return: an AllReduce takes the
// maximum of the ranks' stamps on the host's clock. It returns one sample, the same on all ranks.
func (b *bench[T]) untilAllDone(ctx context.Context, iters int) ([]sample, error) {
	now := hostClock()
	stamps := make([]int64, 2*iters)
	start := time.Now()
	done, over, block := 0, false, iters/10+1
	for done < iters && !over {
		if err := b.comm.Barrier(ctx); err != nil {
			return nil, err
		}
		stamps[2*done] = now()
		err := b.run(ctx)
		stamps[2*done+1] = now()
		if done++; err == nil && done%block == 0 {
			over, err = b.overBudget(ctx, start)
		}
		if err != nil {
			return nil, err
		}
	}
	stamps = stamps[:2*done]
	if err := b.comm.AllReduce(ctx, tutti.Of(stamps), tutti.Max); err != nil {
		return nil, err
	}
	times, total := make([]int64, done), int64(0)
	for i := range times {
		times[i] = stamps[2*i+1] - stamps[2*i]
		total += times[i]
	}
	return []sample{summary(times, total)}, nil
}
