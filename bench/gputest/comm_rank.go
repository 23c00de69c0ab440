package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/freeaddr"
)

// commTimeout is Config.Timeout of the Comms: it ends operations that hang.
const commTimeout = 20 * time.Second

// A commRank is one rank of a job that answers questions about a Comm.
type commRank struct {
	ctx     context.Context
	comm    *tutti.Comm
	dev     *cuda.Device
	compute *cuda.Stream
	x       *cuda.Slice[float32]    // small elements
	hold    *cuda.HostSlice[uint32] // the number that compute waits for in order and abort
	holdAt  uintptr                 // the address of hold on the device
	held    uint32                  // the last number that compute was made to wait for
	out     *cuda.HostSlice[float32]
	tensors []*cuda.Slice[float32]
	ordered *tutti.Batch // an AllReduce of x in the order of compute
	grouped *tutti.Batch // an AllReduce of each of tensors
}

// tensorsInBatch is the number of small tensors in a Batch.
const tensorsInBatch = 100

// answerQuestions reads questions, a name and a number, from in. It prints the numbers that the
// question's function returns. It returns at the end of the input, or with the first error; the
// process then exits.
func answerQuestions(in *bufio.Scanner, questions map[string]func(n int) ([]int64, error)) error {
	fmt.Println("ready")
	for in.Scan() {
		name, number, _ := strings.Cut(in.Text(), " ")
		n, err := strconv.Atoi(number)
		f := questions[name]
		if err != nil || f == nil {
			return fmt.Errorf("what is %q", in.Text())
		}
		numbers, err := f(n)
		if err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		fmt.Println("ns", strings.Trim(fmt.Sprint(numbers), "[]"))
	}
	return nil
}

// joinRanks joins the ranks of a job of startJob. Rank 0 prints its address, and the other ranks
// read it from in. Config.Timeout, by default commTimeout, bounds Join and the operations.
func joinRanks(in *bufio.Scanner, args []string, cfg tutti.Config) (*tutti.Comm, error) {
	if len(args) != 2 {
		return nil, errors.New("usage: gputest comm RANK RANKS")
	}
	var e1, e2 error
	cfg.Rank, e1 = strconv.Atoi(args[0])
	cfg.Size, e2 = strconv.Atoi(args[1])
	if err := errors.Join(e1, e2); err != nil {
		return nil, err
	}
	if err := bindRank(cfg.Rank, cfg.Size); err != nil {
		return nil, err
	}
	if cfg.Rank == 0 {
		addr, err := freeaddr.Reserve()
		if err != nil {
			return nil, err
		}
		defer addr.Release()
		cfg.Addr = addr.Addr
		fmt.Println("id", cfg.Addr)
	} else if in.Scan() {
		cfg.Addr = strings.TrimPrefix(in.Text(), "id ")
	}
	cfg.Device = gpu.Device(0)
	if cfg.Timeout == 0 {
		cfg.Timeout = commTimeout
	}
	return tutti.Join(context.Background(), cfg)
}

// serveComm is the process of one commRank. Its single goroutine joins, answers questions, and
// closes everything.
func serveComm(args []string) error {
	in := bufio.NewScanner(os.Stdin)
	comm, err := joinRanks(in, args, tutti.Config{})
	if err != nil {
		return err
	}
	r, err := newCommRank(comm)
	if err != nil {
		return err
	}
	err = answerQuestions(in, map[string]func(int) ([]int64, error){
		"ordered": func(n int) ([]int64, error) { return r.bursts(n, false) },
		"through": func(n int) ([]int64, error) { return r.bursts(n, true) },
		"group":   r.group, "single": r.single, "calls": r.calls,
		"order":    func(n int) ([]int64, error) { return r.order(n, r.ordered) },
		"disorder": func(n int) ([]int64, error) { return r.order(n, r.comm.Batch().AllReduce(gpu.Of(r.x), tutti.Sum)) },
		"abort":    r.aborts, "dups": r.dups,
	})
	return errors.Join(err, r.close())
}

// newCommRank opens the device, allocates the buffers, and runs the first operation, which all
// ranks must take part in. After an error the process exits, so that nothing is freed.
func newCommRank(comm *tutti.Comm) (*commRank, error) {
	r := &commRank{ctx: context.Background(), comm: comm}
	var err error
	if r.dev, err = cuda.Open(0, nil); err != nil {
		return nil, err
	}
	if r.compute, err = r.dev.NewStream(); err != nil {
		return nil, err
	}
	if r.x, err = cuda.Alloc[float32](r.dev, small); err != nil {
		return nil, err
	}
	if r.hold, err = cuda.AllocHost[uint32](r.dev, 1); err != nil {
		return nil, err
	}
	if r.holdAt, err = r.hold.DevicePointer(); err != nil {
		return nil, err
	}
	if r.out, err = cuda.AllocHost[float32](r.dev, small); err != nil {
		return nil, err
	}
	r.ordered = comm.Batch().On(r.compute).AllReduce(gpu.Of(r.x), tutti.Sum)
	r.grouped = comm.Batch()
	for range tensorsInBatch {
		t, err := cuda.Alloc[float32](r.dev, small)
		if err == nil {
			err = t.Fill(0)
		}
		if err != nil {
			return nil, err
		}
		r.tensors = append(r.tensors, t)
		r.grouped.AllReduce(gpu.Of(t), tutti.Sum)
	}
	// The first operation makes the communicator.
	return r, errors.Join(r.x.Fill(0), comm.AllReduce(r.ctx, gpu.Of(r.x), tutti.Sum))
}

func (r *commRank) close() error {
	err := errors.Join(r.comm.Close(), r.x.Free(), r.hold.Free(), r.out.Free(), r.compute.Close())
	for _, t := range r.tensors {
		err = errors.Join(err, t.Free())
	}
	return errors.Join(err, r.dev.Close())
}

// bursts returns the host's time to enqueue a small operation in the order of a compute
// stream, in nanoseconds. With whole it includes the wait for completion.
func (r *commRank) bursts(times int, whole bool) ([]int64, error) {
	took := make([]int64, times)
	for t := range took {
		var last tutti.Work
		begin := time.Now()
		for range burst {
			w, err := r.ordered.Start(r.ctx)
			if err != nil {
				return nil, err
			}
			last = w
		}
		started := time.Since(begin)
		if err := errors.Join(last.Wait(r.ctx), r.compute.Wait(r.ctx)); err != nil {
			return nil, err
		}
		if whole {
			started = time.Since(begin)
		}
		took[t] = started.Nanoseconds() / burst
	}
	return took, nil
}

// calls times blocking calls.
func (r *commRank) calls(times int) ([]int64, error) {
	return timed(times, func() error { return r.comm.AllReduce(r.ctx, gpu.Of(r.x), tutti.Sum) })
}

// group times a Batch of many small tensors.
func (r *commRank) group(times int) ([]int64, error) {
	return timed(times, func() error {
		w, err := r.grouped.Start(r.ctx)
		return errors.Join(err, w.Wait(r.ctx))
	})
}

// single times one call for each small tensor.
func (r *commRank) single(times int) ([]int64, error) {
	return timed(times, func() error {
		for _, t := range r.tensors {
			if err := r.comm.AllReduce(r.ctx, gpu.Of(t), tutti.Sum); err != nil {
				return err
			}
		}
		return nil
	})
}

func timed(times int, f func() error) ([]int64, error) {
	took := make([]int64, times)
	for t := range took {
		begin := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		took[t] = time.Since(begin).Nanoseconds()
	}
	return took, nil
}

// order holds the compute stream back until a fill, a collective and a copy of the result
// are enqueued on it. It returns the numbers of right and wrong results.
func (r *commRank) order(runs int, b *tutti.Batch) ([]int64, error) {
	var right, wrong int64
	n := r.comm.Size()
	for i := range runs {
		r.held++
		v := float32(i%100*n + r.comm.Rank())
		if err := errors.Join(r.compute.WaitValue(r.holdAt, r.held), r.x.FillOn(r.compute, v)); err != nil {
			return nil, err
		}
		w, err := b.Start(r.ctx)
		if err = errors.Join(err, r.x.CopyToOn(r.compute, r.out.Data())); err != nil {
			return nil, err
		}
		if b != r.ordered { // not ordered with the stream: it completes before the fill
			err = w.Wait(r.ctx)
		}
		atomic.StoreUint32(&r.hold.Data()[0], r.held)
		if err = errors.Join(err, w.Wait(r.ctx), r.compute.Wait(r.ctx)); err != nil {
			return nil, err
		}
		want, ok := float32(i%100*n*n+n*(n-1)/2), true
		for _, got := range r.out.Data() {
			ok = ok && got == want
		}
		if ok {
			right++
		} else {
			wrong++
		}
	}
	return []int64{right, wrong}, nil
}

// aborts calls Abort from another goroutine while the last rank holds an operation back on
// the device. Each run uses a new Comm and closes it. aborts returns the number of runs
// that ended as expected, and the longest time in nanoseconds.
func (r *commRank) aborts(times int) ([]int64, error) {
	var good int64
	var longest time.Duration
	for i := range times {
		d, err := r.comm.Dup(r.ctx)
		if err != nil {
			return nil, err
		}
		took, err := r.abort(d, i%d.Size())
		if err = errors.Join(err, d.Close()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		good++
		longest = max(longest, took)
	}
	return []int64{good, longest.Nanoseconds()}, r.comm.AllReduce(r.ctx, gpu.Of(r.x), tutti.Sum)
}

var errEnough = errors.New("enough")

// abort runs an operation on d that rank by aborts while the last rank's compute stream is held
// back. It returns the time from the Abort to the error on this rank. A goroutine on the last rank
// releases the stream when d has failed. Another error than this Abort, or one later than 5
// seconds, is an error.
func (r *commRank) abort(d *tutti.Comm, by int) (time.Duration, error) {
	if err := d.AllReduce(r.ctx, gpu.Of(r.x), tutti.Sum); err != nil {
		return 0, err
	}
	b := d.Batch().On(r.compute).AllReduce(gpu.Of(r.x), tutti.Sum)
	r.held++
	if d.Rank() == d.Size()-1 {
		if err := r.compute.WaitValue(r.holdAt, r.held); err != nil {
			return 0, err
		}
		// An operation cannot be removed from a stream: its memory is in use until the
		// stream has reached it.
		go func(number uint32) {
			<-d.Done()
			atomic.StoreUint32(&r.hold.Data()[0], number)
		}(r.held)
	}
	w, err := b.Start(r.ctx)
	if err != nil {
		return 0, err
	}
	// Usually long enough for the other ranks' operations to reach the device.
	begin := time.Now().Add(20 * time.Millisecond)
	if d.Rank() == by {
		time.AfterFunc(time.Until(begin), func() { d.Abort(errEnough) })
	}
	err = errors.Join(w.Wait(r.ctx), r.compute.Wait(r.ctx))
	took := time.Since(begin)
	if !errors.Is(err, tutti.ErrRevoked) || !strings.Contains(err.Error(), fmt.Sprintf("on rank %d: %v", by, errEnough)) {
		return 0, fmt.Errorf("an Abort on rank %d is reported as %w", by, err)
	}
	if took > 5*time.Second {
		return 0, fmt.Errorf("an Abort took %v", took)
	}
	return took, nil
}

// dups makes, uses and closes Comms with communicators of their own. It returns the usage
// before and after.
func (r *commRank) dups(times int) ([]int64, error) {
	before, err := usage(r.dev)
	if err != nil {
		return nil, err
	}
	for range times {
		d, err := r.comm.Dup(r.ctx)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(d.AllReduce(r.ctx, gpu.Of(r.x), tutti.Sum), d.Close()); err != nil {
			return nil, err
		}
	}
	after, err := usage(r.dev)
	return append(before, after...), err
}
