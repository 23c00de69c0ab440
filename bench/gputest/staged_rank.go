package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/envvar"
)

// stagedPiece is the size of one copy in bytes. It is a copy of slotBytes of internal/engine/gpu.
const stagedPiece = 4 << 20

// A stagedRank is one rank of a job that answers questions about host staging.
type stagedRank struct {
	ctx     context.Context
	comm    *tutti.Comm
	dev     *cuda.Device
	in, out *cuda.Stream             // for copies from and to the device
	x       *cuda.Slice[float32]     // the operand in device memory
	pinned  *cuda.HostSlice[float32] // for copies, as large as x
	shared  *tutti.Memory[float32]   // the operand in host memory, as large as x
}

// serveStaged is the process of one stagedRank. Its single goroutine joins, answers questions, and
// closes everything. An error before the first question ends the process without closing.
func serveStaged(args []string) error {
	bytes, err := envvar.Int(os.Getenv, "TUTTI_BENCH_BYTES", 0)
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	comm, err := joinRanks(in, args, tutti.Config{HostStaging: true})
	if err != nil {
		return err
	}
	r, err := newStagedRank(comm, bytes/4)
	if err != nil {
		return err
	}
	err = answerQuestions(in, map[string]func(int) ([]int64, error){
		"staged":     r.every(func() error { return r.comm.AllReduce(r.ctx, gpu.Of(r.x), tutti.Sum) }),
		"collective": r.every(func() error { return r.comm.AllReduce(r.ctx, r.shared.Buffer(), tutti.Sum) }),
		"copies":     r.every(r.copies),
		"naive":      r.every(r.naive),
		"right":      r.right,
	})
	return errors.Join(err, r.close())
}

// newStagedRank opens the device and allocates the buffers of n elements. After an error the process
// exits, so that nothing is freed.
func newStagedRank(comm *tutti.Comm, n int) (*stagedRank, error) {
	r := &stagedRank{ctx: context.Background(), comm: comm}
	var err error
	if r.dev, err = cuda.Open(0, nil); err != nil {
		return nil, err
	}
	if r.in, err = r.dev.NewStream(); err != nil {
		return nil, err
	}
	if r.out, err = r.dev.NewStream(); err != nil {
		return nil, err
	}
	if r.x, err = cuda.Alloc[float32](r.dev, n); err != nil {
		return nil, err
	}
	if r.pinned, err = cuda.AllocHost[float32](r.dev, n); err != nil {
		return nil, err
	}
	if r.shared, err = tutti.Alloc[float32](r.ctx, comm, n); err != nil {
		return nil, err
	}
	return r, r.x.Fill(0)
}

func (r *stagedRank) close() error {
	return errors.Join(r.comm.Close(), r.shared.Free(), r.pinned.Free(), r.x.Free(), r.in.Close(), r.out.Close(), r.dev.Close())
}

// every returns a function that times f a number of times, from a barrier before it to a barrier
// after it. All ranks must run it together.
func (r *stagedRank) every(f func() error) func(times int) ([]int64, error) {
	return func(times int) ([]int64, error) {
		took := make([]int64, times)
		for t := range took {
			if err := r.comm.Barrier(r.ctx); err != nil {
				return nil, err
			}
			begin := time.Now()
			if err := f(); err != nil {
				return nil, err
			}
			if err := r.comm.Barrier(r.ctx); err != nil {
				return nil, err
			}
			took[t] = time.Since(begin).Nanoseconds()
		}
		return took, nil
	}
}

// copies performs only the copies of a staged operation, in both directions at once.
func (r *stagedRank) copies() error {
	host := r.pinned.Data()
	for lo := 0; lo < len(host); lo += stagedPiece / 4 {
		hi := min(lo+stagedPiece/4, len(host))
		part, err := r.x.Slice(lo, hi)
		if err == nil {
			err = errors.Join(part.CopyToOn(r.in, host[lo:hi]), part.CopyFromOn(r.out, host[lo:hi]))
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(r.in.Wait(r.ctx), r.out.Wait(r.ctx))
}

// naive performs an operation as a program without staging would.
func (r *stagedRank) naive() error {
	host := make([]float32, r.x.Len())
	return errors.Join(r.x.CopyTo(host), r.comm.AllReduce(r.ctx, tutti.Of(host), tutti.Sum), r.x.CopyFrom(host))
}

// right checks sums of up to n elements. It returns the number of calls that went through
// host memory.
func (r *stagedRank) right(n int) ([]int64, error) {
	x, err := r.x.Slice(0, min(n, r.x.Len()))
	if err != nil {
		return nil, err
	}
	got := make([]float32, x.Len())
	err = errors.Join(x.Fill(float32(r.comm.Rank()+1)), r.comm.AllReduce(r.ctx, gpu.Of(x), tutti.Sum), x.CopyTo(got), x.Fill(0))
	if err != nil {
		return nil, err
	}
	want := float32(r.comm.Size() * (r.comm.Size() + 1) / 2)
	for i, v := range got {
		if v != want {
			return nil, fmt.Errorf("element %d is %v, not %v", i, v, want)
		}
	}
	return []int64{int64(r.comm.Stats().Staged)}, nil
}
