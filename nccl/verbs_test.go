package nccl_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/nccl"
)

// everyType runs AllReduce on all types with all operators, and compares each element with reference. All
// ranks must call it. The first wrong element or error ends it.
func everyType(ctx context.Context, r *rank) error {
	for _, k := range kinds {
		for _, op := range opList {
			if op == nccl.Prod && r.n > 4 && k.t.Size() == 1 {
				continue // products of more ranks do not fit into a byte
			}
			for _, n := range []int{1, 1000} {
				numbers := make([]float64, n)
				for i := range numbers {
					numbers[i] = value(r.r, i)
				}
				s, b, err := put(r, k, numbers)
				if err != nil {
					return err
				}
				err = errors.Join(r.comm.AllReduce(b, b, op, r.stream), r.stream.Wait(ctx))
				got, e := get(s, k)
				if err := errors.Join(err, e, s.Free()); err != nil {
					return fmt.Errorf("%v %v: %w", k.t, op, err)
				}
				for i, x := range got {
					if want := reference(op, r.n, i); !near(k, op, x, want) {
						return fmt.Errorf("%v %v of %d: element %d is %v, want %v", k.t, op, n, i, x, want)
					}
				}
			}
		}
	}
	return nil
}

// everyVerb runs the other collectives with every root, in place and not. All steps are made, and it returns
// all their errors.
func everyVerb(ctx context.Context, r *rank) error {
	const n = 100
	mine, err := cuda.Alloc[int32](r.dev, n)
	if err != nil {
		return err
	}
	defer free(mine)
	all, err := cuda.Alloc[int32](r.dev, n*r.n)
	if err != nil {
		return err
	}
	defer free(all)
	other, err := cuda.Alloc[int32](r.dev, n*r.n)
	if err != nil {
		return err
	}
	defer free(other)
	part, err := all.Slice(r.r*n, (r.r+1)*n)
	if err != nil {
		return err
	}
	fill := func(s *cuda.Slice[int32], f func(i int) int) error {
		host := make([]int32, s.Len())
		for i := range host {
			host[i] = int32(f(i))
		}
		return s.CopyFrom(host)
	}
	expect := func(s *cuda.Slice[int32], f func(i int) int) error {
		host := make([]int32, s.Len())
		if err := errors.Join(r.stream.Wait(ctx), s.CopyTo(host)); err != nil {
			return err
		}
		for i, x := range host {
			if int(x) != f(i) {
				return fmt.Errorf("element %d is %d, want %d", i, x, f(i))
			}
		}
		return nil
	}
	own := func(i int) int { return 1000*r.r + i }
	gathered := func(i int) int { return 1000*(i/n) + i%n }
	sum := func(i int) int { return 1000*r.n*(r.n-1)/2 + r.n*i }
	run := func(what string, steps ...error) error {
		if err := errors.Join(steps...); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	steps := []error{
		run("AllGather", fill(mine, own), r.comm.AllGather(nccl.Of(mine), nccl.Of(all), r.stream), expect(all, gathered)),
		run("AllGather in place", all.Fill(0), fill(part, own), r.comm.AllGather(nccl.Of(part), nccl.Of(all), r.stream), expect(all, gathered)),
		run("ReduceScatter", fill(all, own), r.comm.ReduceScatter(nccl.Of(all), nccl.Of(mine), nccl.Sum, r.stream),
			expect(mine, func(i int) int { return sum(r.r*n + i) })),
		run("ReduceScatter in place", fill(all, own), r.comm.ReduceScatter(nccl.Of(all), nccl.Of(part), nccl.Sum, r.stream),
			expect(part, func(i int) int { return sum(r.r*n + i) })),
		run("AllToAll", fill(all, func(i int) int { return 10000*r.r + i }), r.comm.AllToAll(nccl.Of(all), nccl.Of(other), r.stream),
			expect(other, func(i int) int { return 10000*(i/n) + r.r*n + i%n })),
	}
	for root := range r.n {
		name := func(verb string) string { return fmt.Sprintf("%s, root %d", verb, root) }
		at := r.r == root
		none := nccl.Buffer{}
		pick := func(yes bool, b nccl.Buffer) nccl.Buffer {
			if yes {
				return b
			}
			return none
		}
		steps = append(steps,
			run(name("Broadcast"), fill(mine, own), r.comm.Broadcast(pick(at, nccl.Of(mine)), nccl.Of(mine), root, r.stream),
				expect(mine, func(i int) int { return 1000*root + i })),
			run(name("Reduce"), fill(mine, own), part.Fill(-1), r.comm.Reduce(nccl.Of(mine), pick(at, nccl.Of(part)), nccl.Sum, root, r.stream),
				expect(part, func(i int) int {
					if at {
						return sum(i)
					}
					return -1
				})),
			run(name("Gather"), fill(mine, own), all.Fill(-1), r.comm.Gather(nccl.Of(mine), pick(at, nccl.Of(all)), root, r.stream),
				expect(all, func(i int) int {
					if at {
						return gathered(i)
					}
					return -1
				})),
			run(name("Gather in place"), fill(part, own), r.comm.Gather(nccl.Of(part), nccl.Of(all), root, r.stream),
				r.stream.Wait(ctx)),
			run(name("Scatter"), fill(all, func(i int) int { return 7*r.r + i }), r.comm.Scatter(pick(at, nccl.Of(all)), nccl.Of(mine), root, r.stream),
				expect(mine, func(i int) int { return 7*root + r.r*n + i })),
			run(name("Scatter in place"), fill(all, func(i int) int { return 7*r.r + i }),
				func() error {
					if at {
						return r.comm.Scatter(nccl.Of(all), nccl.Of(part), root, r.stream)
					}
					return r.comm.Scatter(none, nccl.Of(mine), root, r.stream)
				}(),
				r.stream.Wait(ctx)),
		)
	}
	return errors.Join(steps...)
}

// groups exchanges data with both neighbours, and reduces several tensors, in one group.
func groups(ctx context.Context, r *rank) error {
	const n = 50
	var slices [8]*cuda.Slice[float32]
	for i := range slices {
		s, err := cuda.Alloc[float32](r.dev, n)
		if err != nil {
			return err
		}
		defer free(s)
		if err := s.Fill(float32(r.r + i)); err != nil {
			return err
		}
		slices[i] = s
	}
	next, previous := (r.r+1)%r.n, (r.r+r.n-1)%r.n
	err := r.lib.Group(func() error {
		return errors.Join(
			r.comm.Send(nccl.Of(slices[0]), next, r.stream), r.comm.Recv(nccl.Of(slices[1]), previous, r.stream),
			r.comm.Send(nccl.Of(slices[2]), previous, r.stream), r.comm.Recv(nccl.Of(slices[3]), next, r.stream))
	})
	if err != nil {
		return err
	}
	err = r.lib.Group(func() error {
		for _, s := range slices[4:6] {
			if err := r.comm.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream); err != nil {
				return err
			}
		}
		return r.lib.Group(func() error { // part of the outer group
			for _, s := range slices[6:] {
				if err := r.comm.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err := errors.Join(err, r.stream.Wait(ctx)); err != nil {
		return err
	}
	for i, want := range map[int]int{
		1: previous, 3: next + 2, 4: r.n*(r.n-1)/2 + 4*r.n, 5: r.n*(r.n-1)/2 + 5*r.n, 6: r.n*(r.n-1)/2 + 6*r.n, 7: r.n*(r.n-1)/2 + 7*r.n,
	} {
		got := make([]float32, n)
		if err := slices[i].CopyTo(got); err != nil {
			return err
		}
		if got[0] != float32(want) || got[n-1] != float32(want) {
			return fmt.Errorf("slice %d holds %v, want %d", i, got[0], want)
		}
	}
	return nil
}

// premul multiplies by a different factor on each rank, passed by the host and in device memory.
func premul(ctx context.Context, r *rank) error {
	for _, k := range kinds {
		for _, onDevice := range []bool{false, true} {
			s, b, err := put(r, k, []float64{1, 3})
			if err != nil {
				return err
			}
			f, factor, err := put(r, k, []float64{float64(r.r + 1)})
			if err != nil {
				return err
			}
			var op nccl.Op
			if onDevice {
				op, err = r.comm.PreMulSumAt(factor)
			} else {
				op, err = r.comm.PreMulSum(k.t, float64(r.r+1))
			}
			if err != nil {
				return err
			}
			if err := errors.Join(r.comm.AllReduce(b, b, op, r.stream), r.stream.Wait(ctx), r.comm.FreeOp(op), r.comm.FreeOp(op)); err != nil {
				return err
			}
			got, err := get(s, k)
			if want := float64(r.n * (r.n + 1) / 2); err != nil || got[0] != want || got[1] != 3*want {
				return fmt.Errorf("%v, on the device %v: %v, want %v times 1 and 3 (%w)", k.t, onDevice, got, want, err)
			}
			if err := r.comm.AllReduce(b, b, op, r.stream); !errors.Is(err, nccl.ErrInvalid) {
				return fmt.Errorf("a freed operation: %w", err)
			}
			if err := errors.Join(s.Free(), f.Free()); err != nil {
				return err
			}
		}
	}
	return nil
}
