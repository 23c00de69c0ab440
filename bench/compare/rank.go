package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/freeaddr"
)

// rankEnv makes this program one of tutti's ranks; it holds a rankJob.
const rankEnv = "TUTTI_COMPARE_RANK"

// A rankJob says what one of tutti's ranks measures.
type rankJob struct {
	Rank, Ranks    int
	Addr           string
	Network, Alloc bool
	DType, Op      string
	Sizes          []int
	Budget         time.Duration
	Iters          int
}

// runTutti runs a program, this one or another build of it, once for each rank, and returns the
// samples that rank 0 printed. If a rank fails or ctx is cancelled, the other ranks get SIGTERM.
func runTutti(ctx context.Context, o options, transport, program string) ([]sample, error) {
	addr, err := freeaddr.Reserve()
	if err != nil {
		return nil, err
	}
	defer addr.Release()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var ranks []*exec.Cmd
	for r := range o.ranks {
		job, err := json.Marshal(rankJob{
			Rank: r, Ranks: o.ranks, Addr: addr.Addr, Network: transport == "tcp", Alloc: o.alloc,
			DType: o.dtype, Op: o.op, Sizes: o.sizes, Budget: o.budget, Iters: o.iters,
		})
		if err != nil {
			return nil, err
		}
		ranks = append(ranks, child(ctx, []string{rankEnv + "=" + string(job)}, program))
	}
	texts, err := runAll(stop, ranks)
	all, _ := samples(texts[0])
	return all, err
}

// bind binds this process to one core, as mpirun does if there is a core for each
// rank. Otherwise it does nothing.
func bind(rank, ranks int) error {
	all := affinity.Allowed()
	if ranks > len(all) {
		return nil
	}
	return affinity.Bind(all[rank : rank+1])
}

// rankMain is a rank: it joins, measures each size in turn, and prints on rank 0. After an error
// the process exits without Close, so the other ranks fail too.
func rankMain() error {
	var job rankJob
	if err := json.Unmarshal([]byte(os.Getenv(rankEnv)), &job); err != nil {
		return fmt.Errorf("%s: %w", rankEnv, err)
	}
	if err := bind(job.Rank, job.Ranks); err != nil {
		return err
	}
	// A context that can be cancelled, as a program would use.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	comm, err := tutti.Join(ctx, tutti.Config{
		Rank: job.Rank, Size: job.Ranks, Addr: job.Addr, NoSharedMemory: job.Network, Timeout: time.Minute,
	})
	if err != nil {
		return err
	}
	for _, bytes := range job.Sizes {
		if job.DType == "bfloat16" {
			err = measure(ctx, comm, job, bytes, tutti.ToBFloat16)
		} else {
			err = measure(ctx, comm, job, bytes, func(f float32) float32 { return f })
		}
		if err != nil {
			return err
		}
	}
	return comm.Close()
}
