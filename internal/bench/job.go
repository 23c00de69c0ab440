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
)

// A Job is one rank's part in a run.
type Job struct {
	Plan *Plan
	Comm *tutti.Comm
	GPU  GPU // nil: host memory
	// Emit takes what rank 0 tells. It is called by one goroutine.
	Emit func(Event) error
	// Damage, in tests, spoils a rank's result before it is checked.
	Damage func(rank int, what string, dst []byte)
	// Slow, in tests, is called before every operation that is timed.
	Slow func(rank int)
}

// Measure measures what the plan says and returns how many elements were wrong,
// on all ranks the same number. All ranks call it.
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

// again asks rank 0 whether there is time for another pass.
func (r *runner) anotherPass(ctx context.Context, begin time.Time) (bool, error) {
	more := []uint8{0}
	if time.Since(begin) < r.plan.Duration {
		more[0] = 1
	}
	err := r.comm.Broadcast(ctx, tutti.Of(more), 0)
	return more[0] == 1, err
}

// meet finds out where the ranks are, and makes sure that they have got the engine
// that was asked for.
func (r *runner) gatherStart(ctx context.Context, points int) (*Start, error) {
	c := r.comm
	first, near, err := r.hostRanks(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]int32, c.Size())
	if err := c.AllGather(ctx, tutti.Of(all), tutti.Of(first)); err != nil {
		return nil, err
	}
	name, _ := os.Hostname()
	if r.gpu != nil {
		name += " " + r.gpu.Description()
	}
	names, err := tutti.GatherSlices(ctx, c, []byte(name))
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
	hosts := map[int32]bool{}
	s.Cores, s.Bound = countCores(seats)
	s.Machine.Cores = s.Cores
	for i, h := range all {
		hosts[h] = true
		s.Hosts = append(s.Hosts, int(h))
		s.Names = append(s.Names, string(names[i]))
	}
	s.Engine = r.engineName(len(hosts))
	r.engine = s.Engine
	if want := r.plan.Engine; want != Auto && want != s.Engine {
		return nil, fmt.Errorf("engine %s was asked for, but these %d ranks on %d hosts (%d on this one) have %s",
			want, c.Size(), len(hosts), near, s.Engine)
	}
	return s, nil
}

// seats asks all ranks where they run.
func (r *runner) placements(ctx context.Context) ([]placement, error) {
	mine, err := localPlacement()
	if err != nil {
		return nil, err
	}
	all, err := tutti.GatherSlices(ctx, r.comm, mine)
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

// neighbours finds the lowest rank of this host, and how many it has. Over the
// network alone every rank is by itself.
func (r *runner) hostRanks(ctx context.Context) (first []int32, ranks int, err error) {
	first = []int32{int32(r.comm.Rank())}
	if r.plan.Engine == TCP {
		return first, 1, nil
	}
	host, err := r.comm.SplitHost(ctx)
	if err != nil {
		return nil, 0, err
	}
	err = host.AllReduce(ctx, tutti.Of(first), tutti.Min)
	return first, host.Size(), errors.Join(err, host.Close())
}

// kind is the engine that so many hosts make.
func (r *runner) engineName(hosts int) string {
	switch {
	case r.plan.device() || r.plan.Engine == Local:
		return r.plan.Engine
	case hosts == 1:
		return Shm
	case hosts == r.comm.Size():
		return TCP
	}
	return Hier
}

// A place is where a rank is on its host.
type localRank struct{ rank, ranks int }

// localPlace finds that in the environment of whoever started the rank.
func findLocalRank(getenv func(string) string, rank, ranks int) localRank {
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
			return localRank{r, n}
		}
	}
	return localRank{rank, ranks}
}

// config is how a rank of a plan joins. On one machine the engine for several hosts
// is had by giving the ranks two names for it.
func (p *Plan) config(rank, ranks int) tutti.Config {
	cfg := tutti.Config{NoSharedMemory: p.Engine == TCP}
	if p.Engine == Hier && ranks > 0 {
		cfg.Host = fmt.Sprintf("bench %d", 2*rank/ranks)
	}
	return cfg
}
