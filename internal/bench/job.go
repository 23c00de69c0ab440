package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/envvar"
)

// A Job is one rank's part of a run.
type Job struct {
	Plan *Plan
	Comm *tutti.Comm
	GPU  GPU // nil: host memory
	// Emit receives rank 0's events. One goroutine calls it.
	Emit func(Event) error
	// Damage, in tests, changes a rank's result before it is checked.
	Damage func(rank int, what string, dst []byte)
	// Slow, in tests, is called before every timed operation.
	Slow func(rank int)
}

// Measure runs the plan and returns the number of wrong elements, the same on all ranks. All ranks
// call it, each in one goroutine. The first error ends it on this rank; the Comm must then be
// aborted, because other ranks may wait for this one. Wrong results are no error.
func Measure(ctx context.Context, j Job) (wrong int, err error) {
	r := &runner{plan: j.Plan, comm: j.Comm, gpu: j.GPU, emit: j.Emit, damage: j.Damage, slow: j.Slow, patterns: map[key]*pattern{}}
	defer func() { err = errors.Join(err, r.release()) }()
	begin := time.Now()
	list := j.Plan.specs(j.Comm.Size())
	start, err := r.gatherStart(ctx, len(list))
	if err != nil {
		return 0, err
	}
	if err := r.emitEvent(Event{Start: start}); err != nil {
		return 0, err
	}
	done := Finish{}
	for more := true; more; done.Passes++ {
		n, err := r.sweep(ctx, list, done.Passes)
		wrong += n
		if err != nil {
			return wrong, err
		}
		if more, err = r.anotherPass(ctx, begin); err != nil {
			return wrong, err
		}
	}
	if j.Plan.Pairs {
		if done.Outliers, err = r.pairs(ctx, start); err != nil {
			return wrong, err
		}
	}
	done.Seconds = digits(time.Since(begin).Seconds(), 4)
	return wrong, r.emitEvent(Event{Done: &done})
}

// anotherPass asks rank 0 whether there is time for another pass.
func (r *runner) anotherPass(ctx context.Context, begin time.Time) (bool, error) {
	more := []uint8{0}
	if time.Since(begin) < r.plan.Duration {
		more[0] = 1
	}
	err := r.comm.Broadcast(ctx, tutti.Of(more), 0)
	return more[0] == 1, err
}

// gatherStart collects where the ranks run. It returns an error on all ranks if they do not use the
// requested engine.
func (r *runner) gatherStart(ctx context.Context, points int) (*Start, error) {
	c := r.comm
	name, _ := os.Hostname()
	if r.gpu != nil {
		name += " " + r.gpu.Description()
	}
	names, err := tutti.AllGatherSlices(ctx, c, []byte(name))
	if err != nil {
		return nil, err
	}
	seats, err := r.placements(ctx)
	if err != nil {
		return nil, err
	}
	s := &Start{
		Ranks: c.Size(), Points: points, InPlace: r.plan.InPlace, Alloc: r.plan.Alloc,
		Batch: r.plan.Batch, Ahead: r.plan.ahead(), Machine: describeMachine(),
	}
	s.Hosts = c.Info().Hosts
	s.Cores, s.Bound = countCores(seats)
	s.Machine.Cores = s.Cores
	for _, name := range names {
		s.Names = append(s.Names, string(name))
	}
	s.Engine = r.engineName()
	r.engine = s.Engine
	if want := r.plan.Engine; want != Auto && want != s.Engine {
		return nil, fmt.Errorf("engine %s was asked for, but these %d ranks on %d hosts have %s",
			want, c.Size(), len(unique(s.Hosts)), s.Engine)
	}
	return s, nil
}

// placements collects the placement of all ranks, by rank. All ranks call it together.
func (r *runner) placements(ctx context.Context) ([]placement, error) {
	mine, err := localPlacement()
	if err != nil {
		return nil, err
	}
	all, err := tutti.AllGatherSlices(ctx, r.comm, mine)
	if err != nil {
		return nil, err
	}
	seats := make([]placement, len(all))
	for i := range all {
		if err := json.Unmarshal(all[i], &seats[i]); err != nil {
			return nil, err
		}
	}
	return seats, nil
}

// engineName returns the name in Engines of the engine that the Comm has.
func (r *runner) engineName() string {
	switch in := r.comm.Info(); {
	case in.DevicePath == "host staging":
		return Staged
	case in.DevicePath != "":
		return NCCL
	case r.plan.Engine == Local:
		return Local
	case in.Engine == "shm":
		return Shm
	case in.Engine == "network":
		return TCP
	}
	return Hier
}

// A localRank is a rank's index on its host, and the number of ranks there.
type localRank struct{ rank, ranks int }

// findLocalRank reads the index of a rank on its host from the environment of the launcher. Without
// such variables all ranks count as ranks of one host.
func findLocalRank(getenv func(string) string, rank, ranks int) (localRank, error) {
	for _, name := range []string{"TUTTI_LOCAL_RANK", "TUTTI_LOCAL_SIZE"} {
		if _, err := envvar.Int(getenv, name, 0); err != nil {
			return localRank{}, err
		}
	}
	for _, names := range [][2]string{
		{"TUTTI_LOCAL_RANK", "TUTTI_LOCAL_SIZE"},
		{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
		{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
		{"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
		{"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
	} {
		r, e1 := strconv.Atoi(getenv(names[0]))
		count, _, _ := strings.Cut(getenv(names[1]), "(") // Slurm writes 4(x2)
		n, e2 := strconv.Atoi(count)
		if e1 == nil && e2 == nil && n > r {
			return localRank{r, n}, nil
		}
	}
	return localRank{rank, ranks}, nil
}

// config returns the Config of a rank. On one machine, the engine for several hosts
// is selected by two host names.
func (p *Plan) config(rank, ranks int) tutti.Config {
	cfg := tutti.Config{NoSharedMemory: p.Engine == TCP}
	if p.Engine == Hier && ranks > 0 {
		cfg.Host = fmt.Sprintf("bench %d", 2*rank/ranks)
	}
	return cfg
}
