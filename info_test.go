package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/tuttitest"
)

// checkInfo compares the Info of a Comm.
func checkInfo(c *tutti.Comm, want tutti.Info) error {
	if got := c.Info(); !reflect.DeepEqual(got, want) {
		return fmt.Errorf("Info is %+v, want %+v", got, want)
	}
	return nil
}

// TestInfo checks Info of goroutines before and after Dup, Split, Shrink and Close. Another goroutine of each
// rank calls it all the time.
func TestInfo(t *testing.T) {
	all(t, local(t, 3, tutti.Config{}), func(ctx context.Context, c *tutti.Comm) error {
		var caller sync.WaitGroup
		defer caller.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		caller.Go(func() {
			for ctx.Err() == nil {
				_ = c.Info()
				runtime.Gosched()
			}
		})
		want := tutti.Info{Name: "world", Rank: c.Rank(), Size: 3, Engine: "shm", Transport: "memory", Device: -1, Hosts: []int{0, 0, 0}}
		if err := checkInfo(c, want); err != nil {
			return err
		}
		dup, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		defer dup.Close()
		want.Name = dup.Stats().Comm
		if err := checkInfo(dup, want); err != nil {
			return err
		}
		if c.Rank() == 2 {
			return nil // as if its function had failed
		}
		next, _, err := dup.Shrink(ctx)
		if err != nil {
			return err
		}
		defer next.Close()
		want = tutti.Info{
			Name: next.Stats().Comm, Generation: 1, Rank: c.Rank(), Size: 2, Engine: "shm", Transport: "memory", Device: -1, Hosts: []int{0, 0},
		}
		if err := checkInfo(next, want); err != nil {
			return err
		}
		own, err := next.Split(ctx, next.Rank(), 0)
		if err != nil {
			return err
		}
		want = tutti.Info{Name: own.Stats().Comm, Size: 1, Engine: "shm", Transport: "memory", Device: -1, Hosts: []int{0}}
		return errors.Join(checkInfo(own, want), own.Close(), checkInfo(own, want))
	})
}

// TestInfoProcesses checks the engine and the transport of ranks that Join connects, on one host and on hosts
// that Config.Host distinguishes.
func TestInfoProcesses(t *testing.T) {
	cert, key, err := tutti.NewJobCert(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		hosts []string // by rank
		cfg   tutti.Config
		want  tutti.Info
	}{
		"shared memory": {[]string{"", ""}, tutti.Config{}, tutti.Info{Engine: "shm", Transport: "shared memory", Hosts: []int{0, 0}}},
		"network":       {[]string{"", ""}, tutti.Config{NoSharedMemory: true}, tutti.Info{Engine: "network", Transport: "tcp", Hosts: []int{0, 1}}},
		"encrypted": {
			[]string{"", ""},
			tutti.Config{NoSharedMemory: true, Cert: cert, Key: key},
			tutti.Info{Engine: "network", Transport: "tcp with tls", Hosts: []int{0, 1}},
		},
		"hierarchy": {
			[]string{"a", "b", "a"}, tutti.Config{}, tutti.Info{Engine: "hier", Transport: "shared memory and tcp", Hosts: []int{0, 1, 0}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if name != "network" && name != "encrypted" && runtime.GOOS != "linux" {
				t.Skip("shared memory between processes needs Linux")
			}
			cfgs := make([]tutti.Config, len(c.hosts))
			for r, host := range c.hosts {
				cfgs[r] = c.cfg
				cfgs[r].Host = host
			}
			errs := joinRanks(t, cfgs, func(_ context.Context, comm *tutti.Comm) error {
				want := c.want
				want.Name, want.Rank, want.Size, want.Device = "world", comm.Rank(), len(cfgs), -1
				return checkInfo(comm, want)
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestInfoLate admits a process by Grow: Info of the new rank alone says that it came late.
func TestInfoLate(t *testing.T) {
	f := newProcessJob(t)
	t.Setenv("TUTTI_STORE", f.server.Addr().String())
	t.Setenv("TUTTI_SECRET", "a secret")
	t.Setenv("TUTTI_RANK", "0")
	t.Setenv("TUTTI_SIZE", "1")
	quiet := slog.New(slog.DiscardHandler)
	c, err := tutti.Join(t.Context(), tutti.Config{ShrinkTimeout: deadline, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	check := func(c *tutti.Comm, rank int, late bool) error {
		want := tutti.Info{
			Name: c.Stats().Comm, Generation: 1, Rank: rank, Size: 2, Late: late,
			Engine: "shm", Transport: "shared memory", Device: -1, Hosts: []int{0, 0},
		}
		return errors.Join(checkInfo(c, want), c.Close())
	}
	newcomer := make(chan error)
	go func() {
		c, err := tutti.Join(t.Context(), tutti.Config{Late: true, ShrinkTimeout: deadline, Logger: quiet})
		if err == nil {
			err = check(c, 1, true)
		}
		newcomer <- err
	}()
	next, err := c.Grow(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(check(next, 0, false), <-newcomer); err != nil {
		t.Error(err)
	}
}

// TestInfoSimulated checks Info of simulated ranks.
func TestInfoSimulated(t *testing.T) {
	res := tuttitest.Run(t, tuttitest.Options{Ranks: 2}, func(_ context.Context, c *tutti.Comm) error {
		return checkInfo(c, tutti.Info{
			Name: "world", Rank: c.Rank(), Size: 2, Engine: "network", Transport: "simulated", Device: -1, Hosts: []int{0, 1},
		})
	})
	if err := errors.Join(res.Errs...); err != nil {
		t.Error(err)
	}
}

// TestSeq maps the result done of Shrink to steps. A step is two operations, of which one is a Batch; rank 2
// leaves between the two operations of step 3. The step that was interrupted is the first whose number is
// more than done, on all ranks.
func TestSeq(t *testing.T) {
	const steps = 5
	all(t, local(t, 3, tutti.Config{}), func(ctx context.Context, c *tutti.Comm) error {
		if c.Seq() != 0 || (tutti.Work{}).Seq() != 0 {
			return fmt.Errorf("the number is %d before the first operation, and that of no Work is %d", c.Seq(), (tutti.Work{}).Seq())
		}
		var ends []uint64 // by step
		x := []int{c.Rank()}
		work := func() error {
			for step := range steps {
				err := c.AllReduce(ctx, tutti.Of(x), tutti.Sum)
				if step == 3 && c.Rank() == 2 {
					return errors.Join(err, c.Close())
				}
				if err != nil {
					return err
				}
				w, err := c.Batch().AllReduce(tutti.Of(x), tutti.Sum).Barrier().Start(ctx)
				if err != nil {
					return err
				}
				if w.Seq() != c.Seq() {
					return fmt.Errorf("the Work has number %d, the Comm %d", w.Seq(), c.Seq())
				}
				if err := w.Wait(ctx); err != nil {
					return err
				}
				ends = append(ends, c.Seq())
			}
			return errors.New("all steps are complete")
		}
		if err := work(); c.Rank() == 2 || !errors.Is(err, tutti.ErrRankLost) {
			return err
		}
		next, done, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		defer next.Close()
		complete := 0
		for complete < len(ends) && ends[complete] <= done {
			complete++
		}
		if complete != 3 || done != ends[2]+1 || next.Seq() != 0 {
			return fmt.Errorf("%d steps are complete; done is %d, the steps end at %v; the new Comm is at %d", complete, done, ends, next.Seq())
		}
		return nil
	})
}

// TestSeqMessages checks that messages and refused calls have no number.
func TestSeqMessages(t *testing.T) {
	all(t, local(t, 2, tutti.Config{}), func(ctx context.Context, c *tutti.Comm) error {
		peer, in := 1-c.Rank(), []int{0}
		w, err := c.Batch().Send(peer, tutti.Of([]int{1}), 0).Recv(peer, tutti.Of(in), 0).Start(ctx)
		if err != nil {
			return err
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
		if err := c.Broadcast(ctx, tutti.Of(in), 2); !errors.Is(err, tutti.ErrInvalid) {
			return fmt.Errorf("a Broadcast from rank 2 of 2: %w", err)
		}
		if w.Seq() != 0 || c.Seq() != 0 {
			return fmt.Errorf("the Work has number %d, the Comm %d", w.Seq(), c.Seq())
		}
		if err := c.Barrier(ctx); err != nil || c.Seq() != 1 {
			return fmt.Errorf("the Comm has number %d: %w", c.Seq(), err)
		}
		return nil
	})
}
