package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/internal/race"
	"github.com/tutti-go/tutti/store"
)

var families = map[string][]string{"shared memory": nil, "network": {"TUTTI_TEST_NETWORK=1"}}

// TestJoinShrink kills one of four ranks; every rank is killed in one of the cases.
func TestJoinShrink(t *testing.T) {
	for name, env := range families {
		for victim := range 4 {
			t.Run(fmt.Sprintf("%s/rank=%d", name, victim), func(t *testing.T) {
				f := newProcessJob(t, env...)
				f.ranks(4)
				f.checkSize(f.procs)
				f.kill(f.procs[victim])
				rest := f.without(f.procs[victim])
				for _, p := range rest {
					if got := f.expect(p, "lost "); got != fmt.Sprintf("[%d]", victim) {
						f.fail("process %d lost %s, want %d", p.id, got, victim)
					}
				}
				f.checkSize(rest)
				f.end(rest)
			})
		}
	}
}

// TestJoinShrinkTwice kills a second rank during Shrink, after the decision that it continues: the new rank
// 0, for which the others wait, or another. The remaining ranks form the next generation and continue.
func TestJoinShrinkTwice(t *testing.T) {
	t.Parallel()
	for _, second := range []int{0, 3} {
		if second == 3 && testing.Short() {
			continue
		}
		t.Run(fmt.Sprint("rank=", second), func(t *testing.T) {
			t.Parallel() // it mostly waits
			f := newProcessJob(t, fmt.Sprint("TUTTI_TEST_DIES=", second), "TUTTI_TEST_SHRINK_TIMEOUT=6s")
			f.ranks(5)
			f.checkSize(f.procs)
			f.kill(f.procs[1])
			f.died(f.procs[second])
			rest := f.without(f.procs[1], f.procs[second])
			for _, p := range rest {
				f.expect(p, "formed again")
			}
			f.checkSize(rest)
			f.end(rest)
		})
	}
}

// TestJoinShrinkStopped stops one rank with SIGSTOP and kills another. The others shrink without both. The
// stopped rank, when it continues, cannot shrink, because it was left behind.
func TestJoinShrinkStopped(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]int{"network": 0, "shared memory": 1} {
		t.Run(fmt.Sprintf("%s/rank=%d", name, stop), func(t *testing.T) {
			t.Parallel() // it mostly waits
			f := newProcessJob(t, append(families[name], "TUTTI_TEST_SHRINK_TIMEOUT=6s")...)
			f.ranks(4)
			f.checkSize(f.procs)
			stopped := f.procs[stop]
			proctest.Stop(t, stopped.cmd.Process.Pid)
			f.kill(f.procs[2])
			rest := f.without(stopped, f.procs[2])
			if stop == 0 { // a stopped rank 0 would otherwise forward the loss
				for _, p := range rest {
					f.tell(p, "give up")
				}
			}
			f.checkSize(rest)
			stopped.signal(t, syscall.SIGCONT)
			if got := f.expect(stopped, "cannot shrink: "); !strings.Contains(got, "left behind") {
				f.fail("the rank that was stopped: %s", got)
			}
			f.end(rest)
		})
	}
}

// TestJoinShrinkNoStore checks Shrink without a reachable store, which is needed
// for the decision.
func TestJoinShrinkNoStore(t *testing.T) {
	t.Parallel() // it mostly waits
	f := newProcessJob(t, "TUTTI_TEST_SHRINK_TIMEOUT=1s")
	f.ranks(3)
	f.checkSize(f.procs)
	f.server.Close()
	f.kill(f.procs[1])
	for _, p := range f.without(f.procs[1]) {
		if got := f.expect(p, "cannot shrink: "); !strings.Contains(got, "could not agree") {
			f.fail("process %d: %s", p.id, got)
		}
	}
}

// TestJoinNoStore calls Shrink in a job without a store: it returns ErrUnsupported, and the Comm stays
// usable. Each rank is a goroutine.
func TestJoinNoStore(t *testing.T) {
	addr := proctest.FreeAddr(t)
	errs := make(chan error, 2)
	for r := range 2 {
		go func() {
			c, err := tutti.Join(t.Context(), tutti.Config{Rank: r, Size: 2, Addr: addr})
			if err != nil {
				errs <- err
				return
			}
			_, _, err = c.Shrink(t.Context())
			if errors.Is(err, tutti.ErrUnsupported) {
				err = nil
			}
			errs <- errors.Join(err, c.Barrier(t.Context()), c.Close())
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestJoinGrow repeatedly kills ranks, one after the other, and admits the same
// number of new processes. Every rank sums the contributions of all. At the end all
// must have the same sum, and it must be the sum for the ranks that were there.
func TestJoinGrow(t *testing.T) {
	size, rounds, network := 8, 4, []string(nil)
	if testing.Short() || race.Enabled {
		size, rounds, network = 4, 2, []string{"TUTTI_TEST_NETWORK=1"}
	}
	f := newProcessJob(t, network...)
	f.ranks(size)
	alive := slices.Clone(f.procs)
	f.checkSize(alive)
	kills := 0
	for round := range rounds {
		for range size - 3 {
			victim := (round + 5*kills) % len(alive)
			f.kill(alive[victim])
			kills++
			alive = slices.Delete(alive, victim, victim+1)
			f.checkSize(alive)
		}
		for range size - len(alive) {
			p := f.start("TUTTI_LATE=1")
			// Processes are admitted in the order in which they arrive.
			f.awaitKey(jobstore.Ticket(int64(p.id - size + 1)))
			alive = append(alive, p)
		}
		ask := fmt.Sprint("grow ", size-3)
		if round%2 == 1 {
			ask = "welcome" // admit all processes that have arrived
		}
		f.tell(alive[round%3], ask)
		f.checkSize(alive)
	}
	f.tell(alive[0], "stop")
	sums := make(map[string]int)
	for _, p := range alive {
		sums[f.expect(p, "end")]++
	}
	if len(sums) != 1 {
		f.fail("ranks have different sums: %v", sums)
	}
	for sum := range sums {
		t.Logf("%d kills, %d processes: %s", kills, len(f.procs), sum)
	}
}

// TestJoinLateErrors checks the errors of a late process without a store, and of one that no rank admits with
// Grow: it times out and marks its ticket as withdrawn. A busy machine lets the timeout pass too early; the
// test then repeats with a longer one.
func TestJoinLateErrors(t *testing.T) {
	_, err := tutti.Join(t.Context(), tutti.Config{Late: true})
	if !errors.Is(err, tutti.ErrInvalid) || !strings.Contains(err.Error(), "TUTTI_STORE") {
		t.Error(err)
	}
	t.Setenv("TUTTI_SECRET", "a secret")
	for late := 50 * time.Millisecond; ; late *= 4 {
		f := newProcessJob(t)
		t.Setenv("TUTTI_STORE", f.server.Addr().String())
		ctx, cancel := context.WithTimeout(t.Context(), late)
		_, err := tutti.Join(ctx, tutti.Config{Late: true, Timeout: 1}) // Timeout is for operations
		cancel()
		if !errors.Is(err, tutti.ErrTimeout) {
			t.Fatal(err)
		}
		if !strings.Contains(err.Error(), "have not called Grow") {
			if late < deadline {
				continue // the machine is busy, and the time passed before the process waited
			}
			t.Fatal(err)
		}
		// The process has withdrawn, so no rank waits for it.
		who, err := store.Prefix(f.server.Store(), jobstore.Ranks("")).Get(t.Context(), jobstore.Ticket(1))
		if err != nil || string(who) != jobstore.Withdrawn {
			t.Errorf("%q, %v", who, err)
		}
		return
	}
}

// TestJoinLateDamaged has a late process read a decision that is none. The error does not claim that the ranks
// have not called Grow, and the process withdraws its ticket.
func TestJoinLateDamaged(t *testing.T) {
	f := newProcessJob(t)
	t.Setenv("TUTTI_STORE", f.server.Addr().String())
	t.Setenv("TUTTI_SECRET", "a secret")
	s := store.Prefix(f.server.Store(), jobstore.Ranks(""))
	key := jobstore.Decision(jobstore.Generation(jobstore.World, 0))
	if err := s.Set(t.Context(), key, []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	_, err := tutti.Join(ctx, tutti.Config{Late: true})
	if !errors.Is(err, tutti.ErrAborted) || !strings.Contains(err.Error(), "waiting until the ranks of the job call Grow: the store's value") {
		t.Error(err)
	}
	if who, err := s.Get(t.Context(), jobstore.Ticket(1)); err != nil || string(who) != jobstore.Withdrawn {
		t.Errorf("%q, %v", who, err)
	}
}

// TestGrowByNobody calls Grow when no process has arrived, or none waits any longer. Grow returns the same
// Comm, which continues; a negative count is ErrInvalid.
func TestGrowByNobody(t *testing.T) {
	f := newProcessJob(t)
	t.Setenv("TUTTI_STORE", f.server.Addr().String())
	t.Setenv("TUTTI_SECRET", "a secret")
	t.Setenv("TUTTI_RANK", "0")
	t.Setenv("TUTTI_SIZE", "1")
	c, err := tutti.Join(t.Context(), tutti.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		next, err := c.Grow(t.Context(), 0)
		if err != nil || next != c {
			t.Fatal(next, err)
		}
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err = tutti.Join(short, tutti.Config{Late: true})
		cancel()
		if !errors.Is(err, tutti.ErrTimeout) {
			t.Error(err)
		}
	}
	if err := c.Barrier(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.Grow(t.Context(), -1); !errors.Is(err, tutti.ErrInvalid) {
		t.Error(err)
	}
}

// TestGrowDiffers has a late process with other options than the job join in a goroutine. It gets
// ErrMismatch, and Grow returns a Comm without it.
func TestGrowDiffers(t *testing.T) {
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
	told := make(chan error)
	go func() {
		_, err := tutti.Join(t.Context(), tutti.Config{Late: true, Verify: true, ShrinkTimeout: deadline, Logger: quiet})
		told <- err
	}()
	next, err := c.Grow(t.Context(), 1)
	if err != nil || next.Size() != 1 {
		t.Fatal(next, err)
	}
	if err := errors.Join(next.Barrier(t.Context()), next.Close()); err != nil {
		t.Error(err)
	}
	if err := <-told; !errors.Is(err, tutti.ErrMismatch) || !strings.Contains(err.Error(), "Config.Verify is not set on rank 0") {
		t.Error(err)
	}
}

// TestStoreWithoutLauncher serves a store in one call, for ranks that no launcher has started: goroutines here.
// They shrink after rank 2 has left, and admit a process that joins late.
func TestStoreWithoutLauncher(t *testing.T) {
	const secret = "what the ranks of this job know"
	s, err := store.Listen(t.Context(), "127.0.0.1:0", store.Config{Secret: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	t.Setenv("TUTTI_STORE", s.Addr().String())
	t.Setenv("TUTTI_SECRET", secret)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	rank := func(cfg tutti.Config) error {
		cfg.ShrinkTimeout, cfg.Logger = deadline, quiet
		c, err := tutti.Join(ctx, cfg)
		if err != nil {
			return err
		}
		switch in := c.Info(); {
		case in.Late:
		case in.Rank == 2:
			return c.Close()
		default:
			if err := c.Barrier(ctx); !errors.Is(err, tutti.ErrRankLost) && !errors.Is(err, tutti.ErrAborted) {
				return fmt.Errorf("a Barrier without rank 2: %w", err)
			}
			if c, _, err = c.Shrink(ctx); err == nil {
				c, err = c.Grow(ctx, 1)
			}
			if err != nil {
				return err
			}
		}
		if c.Size() != 3 {
			return fmt.Errorf("%d ranks", c.Size())
		}
		return errors.Join(c.Barrier(ctx), c.Close())
	}
	cfgs := []tutti.Config{{Rank: 0, Size: 3}, {Rank: 1, Size: 3}, {Rank: 2, Size: 3}, {Late: true}}
	errs := make(chan error, len(cfgs))
	for _, cfg := range cfgs {
		go func() { errs <- rank(cfg) }()
	}
	for range cfgs {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
