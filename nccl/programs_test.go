package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/nccl"
)

// programs are what ranks do, in goroutines and in processes, on the stand-in
// and on the real library.
var programs = map[string]program{
	"types":    everyType,
	"verbs":    everyVerb,
	"groups":   groups,
	"premul":   premul,
	"split":    split,
	"memory":   memory,
	"signals":  signals,
	"order":    order,
	"finalize": finalize,
	"lost":     lost,
}

// A kind is a type of elements, and how numbers are written and read as such.
type kind struct {
	t     nccl.DataType
	write func(float64) uint64
	read  func(uint64) float64
}

var kinds = []kind{
	{nccl.Int8, func(x float64) uint64 { return uint64(uint8(int8(x))) }, func(b uint64) float64 { return float64(int8(b)) }},
	{nccl.Uint8, func(x float64) uint64 { return uint64(uint8(x)) }, func(b uint64) float64 { return float64(uint8(b)) }},
	{nccl.Int32, func(x float64) uint64 { return uint64(uint32(int32(x))) }, func(b uint64) float64 { return float64(int32(b)) }},
	{nccl.Uint32, func(x float64) uint64 { return uint64(uint32(x)) }, func(b uint64) float64 { return float64(uint32(b)) }},
	{nccl.Int64, func(x float64) uint64 { return uint64(int64(x)) }, func(b uint64) float64 { return float64(int64(b)) }},
	{nccl.Uint64, func(x float64) uint64 { return uint64(x) }, func(b uint64) float64 { return float64(b) }},
	{nccl.Float16, func(x float64) uint64 { return uint64(kernel.Float32ToFloat16(float32(x))) }, func(b uint64) float64 { return float64(kernel.Float16ToFloat32(uint16(b))) }},
	{nccl.BFloat16, func(x float64) uint64 { return uint64(kernel.Float32ToBFloat16(float32(x))) }, func(b uint64) float64 { return float64(kernel.BFloat16ToFloat32(uint16(b))) }},
	{nccl.Float32, func(x float64) uint64 { return uint64(math.Float32bits(float32(x))) }, func(b uint64) float64 { return float64(math.Float32frombits(uint32(b))) }},
	{nccl.Float64, math.Float64bits, math.Float64frombits},
}

// put makes device memory that holds numbers as elements of a type.
func put(r *rank, k kind, numbers []float64) (*cuda.Slice[uint8], nccl.Buffer, error) {
	size := k.t.Size()
	host := make([]uint8, len(numbers)*size)
	for i, x := range numbers {
		bits := k.write(x)
		for j := range size {
			host[i*size+j] = byte(bits >> (8 * j))
		}
	}
	s, err := cuda.Alloc[uint8](r.dev, len(host))
	if err != nil {
		return nil, nccl.Buffer{}, err
	}
	b, err := nccl.Raw(r.dev, s.Pointer(), len(numbers), k.t)
	return s, b, errors.Join(err, s.CopyFrom(host))
}

func get(s *cuda.Slice[uint8], k kind) ([]float64, error) {
	size := k.t.Size()
	host := make([]uint8, s.Len())
	err := s.CopyTo(host)
	numbers := make([]float64, len(host)/size)
	for i := range numbers {
		var bits uint64
		for j := range size {
			bits |= uint64(host[i*size+j]) << (8 * j)
		}
		numbers[i] = k.read(bits)
	}
	return numbers, err
}

var opList = []nccl.Op{nccl.Sum, nccl.Prod, nccl.Max, nccl.Min, nccl.Avg}

// value is element i of rank r's contribution: small, so that results fit into
// every type.
func value(r, i int) float64 { return float64((i+r)%3 + 1) }

func reference(op nccl.Op, n, i int) float64 {
	x := value(0, i)
	for r := 1; r < n; r++ {
		y := value(r, i)
		switch op {
		case nccl.Prod:
			x *= y
		case nccl.Max:
			x = max(x, y)
		case nccl.Min:
			x = min(x, y)
		default:
			x += y
		}
	}
	if op == nccl.Avg {
		x /= float64(n)
	}
	return x
}

// near compares results: averages are rounded on the way, and integers' are
// rounded down.
func near(k kind, op nccl.Op, got, want float64) bool {
	if op != nccl.Avg {
		return got == want
	}
	switch k.t {
	case nccl.Float16, nccl.BFloat16, nccl.Float32, nccl.Float64:
		return math.Abs(got-want) <= 0.05
	}
	return got == math.Floor(want)
}

// everyType runs AllReduce on all types with all operations.
func everyType(ctx context.Context, r *rank) error {
	for _, k := range kinds {
		for _, op := range opList {
			if op == nccl.Prod && r.n > 4 && k.t.Size() == 1 {
				continue // products of more do not fit into a byte
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

// everyVerb runs the other collectives, with every root, in place and not.
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

// groups exchanges with both neighbours, and reduces several tensors, at once.
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
		return r.lib.Group(func() error { // part of the other
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

// premul multiplies by a factor of each rank's own, given by the host and by the
// device.
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

// split makes communicators of even and odd ranks, in reverse order, and one
// without the last rank.
func split(ctx context.Context, r *rank) error {
	sub, err := r.comm.Split(ctx, r.r%2, -r.r, nccl.Config{})
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	size := (r.n + 1 - r.r%2) / 2
	if sub.Size() != size || sub.Rank() != size-1-r.r/2 {
		return fmt.Errorf("rank %d of %d, want %d of %d", sub.Rank(), sub.Size(), size-1-r.r/2, size)
	}
	if err := sums(ctx, r, sub); err != nil {
		return err
	}
	color := 0
	if r.r == r.n-1 {
		color = nccl.NoColor
	}
	rest, err := r.comm.Split(ctx, color, 0, nccl.Config{})
	if err != nil || (rest == nil) != (color == nccl.NoColor) {
		return fmt.Errorf("%v, %w", rest, err)
	}
	if rest != nil {
		defer rest.Close()
		if err := sums(ctx, r, rest); err != nil {
			return err
		}
	}
	return sums(ctx, r, r.comm)
}

// sums checks that a communicator works.
func sums(ctx context.Context, r *rank, c *nccl.Comm) error {
	s, err := cuda.Alloc[int64](r.dev, 10)
	if err != nil {
		return err
	}
	defer free(s)
	got := make([]int64, 10)
	err = errors.Join(s.Fill(int64(c.Rank()+1)), c.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream), r.stream.Wait(ctx))
	if err = errors.Join(err, c.AsyncError()); err != nil {
		return err
	}
	if want := int64(c.Size() * (c.Size() + 1) / 2); s.CopyTo(got) != nil || got[9] != want {
		return fmt.Errorf("%d ranks sum to %d, want %d", c.Size(), got[9], want)
	}
	return nil
}

// memory uses NCCL's own allocation, registration and windows.
func memory(ctx context.Context, r *rank) error {
	s, err := nccl.Alloc[float32](r.lib, r.dev, 1<<16)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer free(s)
	reg, err := r.comm.Register(nccl.Of(s))
	if err != nil {
		return err
	}
	got := make([]float32, s.Len())
	err = errors.Join(s.Fill(1), r.comm.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream), r.stream.Wait(ctx), s.CopyTo(got), reg.Close(), reg.Close())
	if err != nil || got[1] != float32(r.n) {
		return fmt.Errorf("registered: %v, %w", got[1], err)
	}
	w, err := r.comm.NewWindow(ctx, nccl.Of(s), nccl.Symmetric)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if w.Supported() {
		if p, err := w.Pointer(); !missing(err) && (err != nil || p != s.Pointer()) {
			return fmt.Errorf("the window is at %#x: %w", p, err)
		}
	}
	err = errors.Join(s.Fill(2), r.comm.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream), r.stream.Wait(ctx), s.CopyTo(got), w.Close(), w.Close())
	if err != nil || got[1] != float32(2*r.n) {
		return fmt.Errorf("in a window: %v, %w", got[1], err)
	}
	return nil
}

// signals writes into the next rank's window. Where NCCL cannot, it says so.
func signals(ctx context.Context, r *rank) error {
	v := nccl.Version{Major: 2, Minor: 29}
	if r.n == 1 || r.lib.Needs("signals", v) != nil || control == nil && os.Getenv("TUTTI_TEST_GPU") != "" {
		return nil // on one GPU ranks have no common windows
	}
	s, err := nccl.Alloc[int32](r.lib, r.dev, 1024)
	if err != nil {
		return err
	}
	defer free(s)
	from, err := cuda.Alloc[int32](r.dev, 10)
	if err != nil {
		return err
	}
	defer free(from)
	if err := errors.Join(s.Fill(-1), from.Fill(int32(r.r))); err != nil {
		return err
	}
	w, err := r.comm.NewWindow(ctx, nccl.Of(s), nccl.Symmetric)
	if err != nil {
		return err
	}
	defer w.Close()
	next, previous := (r.r+1)%r.n, (r.r+r.n-1)%r.n
	err = errors.Join(r.comm.PutSignal(nccl.Of(from), next, w, 100, r.stream), r.comm.Signal(next, r.stream),
		r.comm.WaitSignal(previous, 2, r.stream), r.stream.Wait(ctx))
	got := make([]int32, 1024)
	if err = errors.Join(err, s.CopyTo(got)); err != nil {
		return err
	}
	if got[99] != -1 || got[100] != int32(previous) || got[109] != int32(previous) || got[110] != -1 {
		return fmt.Errorf("the window holds %v", got[98:112])
	}
	return sums(ctx, r, r.comm)
}

// order holds a fill back on a compute stream, runs a collective on another and
// reads on the first, ordered by events alone; and once without them, to show that
// this can fail.
func order(ctx context.Context, r *rank) error {
	// The first collective connects the ranks, for which NCCL may need the device.
	if err := sums(ctx, r, r.comm); err != nil {
		return err
	}
	compute, err := r.dev.NewStream()
	if err != nil {
		return err
	}
	defer compute.Close()
	gate, err := cuda.AllocHost[uint32](r.dev, 1)
	if err != nil {
		return err
	}
	defer free(gate)
	addr, err := gate.DevicePointer()
	if err != nil {
		return err
	}
	s, err := cuda.Alloc[float32](r.dev, 1000)
	if err != nil {
		return err
	}
	defer free(s)
	out, err := cuda.AllocHost[float32](r.dev, 1000)
	if err != nil {
		return err
	}
	defer free(out)
	for round := range uint32(20) {
		events := round%10 != 9
		step := func(err error, on bool, f func() error) error {
			if err != nil || !on {
				return err
			}
			return f()
		}
		err := s.Fill(-1)
		err = step(err, true, func() error { return compute.WaitValue(addr, round+1) })
		err = step(err, true, func() error { return s.FillOn(compute, float32(r.r+1)) })
		err = step(err, events, func() error { return r.stream.WaitStream(compute) })
		err = step(err, true, func() error { return r.comm.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream) })
		err = step(err, events, func() error { return compute.WaitStream(r.stream) })
		err = step(err, true, func() error { return s.CopyToOn(compute, out.Data()) })
		if !events { // the collective runs while the fill is held back
			err = step(err, true, func() error { return r.stream.Wait(ctx) })
		}
		atomic.StoreUint32(&gate.Data()[0], round+1)
		if err := errors.Join(err, compute.Wait(ctx), r.stream.Wait(ctx)); err != nil {
			return err
		}
		right := out.Data()[999] == float32(r.n*(r.n+1)/2)
		if r.n > 1 && right != events {
			return fmt.Errorf("events %v: the result is %v", events, out.Data()[999])
		}
	}
	return nil
}

func finalize(ctx context.Context, r *rank) error {
	if err := errors.Join(sums(ctx, r, r.comm), r.comm.Finalize(ctx)); err != nil {
		return err
	}
	if err := sums(ctx, r, r.comm); !errors.Is(err, nccl.ErrClosed) {
		return fmt.Errorf("finalized: %w", err)
	}
	return nil
}

// lost kills the last rank's process while the others wait for it. They see it
// within a time and abort.
func lost(ctx context.Context, r *rank) error {
	if err := sums(ctx, r, r.comm); err != nil {
		return err
	}
	if r.r == r.n-1 {
		p, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		_ = p.Kill()
		select {}
	}
	s, err := cuda.Alloc[float32](r.dev, 1<<20)
	if err != nil {
		return err
	}
	if err := r.comm.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream); err != nil {
		return err
	}
	for r.comm.AsyncError() == nil {
		if done, err := r.stream.Done(); done || err != nil {
			return fmt.Errorf("the collective ended without the lost rank: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("nobody noticed: %w", err)
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("noticed:", r.comm.AsyncError())
	return errors.Join(r.comm.Abort(ctx), r.stream.Wait(ctx), s.Free())
}
