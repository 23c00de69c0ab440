package tutti

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/control"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/store"
)

// rejoinStore is a store as a launcher has, or as torchrun's agent has.
func rejoinStore(t *testing.T, plain bool) (*store.Server, *launchenv.Place) {
	t.Helper()
	config := store.Config{Plain: plain, Logger: slog.New(slog.DiscardHandler)}
	if !plain {
		config.Secret = []byte(rejoinSecret)
	}
	s, err := store.Listen(t.Context(), "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, &launchenv.Place{Store: s.Addr().String(), Plain: plain, Epoch: "0"}
}

const rejoinSecret = "0123456789abcdef0123456789abcdef"

// rejoin is Join of a rank of this process.
func rejoin(ctx context.Context, p *launchenv.Place, rank, size int, most time.Duration) (*Comm, error) {
	cfg := Config{Rank: rank, Size: size, Secret: rejoinSecret, Logger: slog.New(slog.DiscardHandler)}
	cfg.fill()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return joinJob(ctx, &cfg, p)
}

// TestRejoin has one rank try again and again, each time for a short while, and
// then another one that has patience come: they meet. If the one gives up just when
// the other comes, the other's Join or Barrier fails, and it joins again.
func TestRejoin(t *testing.T) {
	for name, plain := range map[string]bool{"launcher": false, "torchrun's agent": true} {
		for impatient := range 2 {
			t.Run(fmt.Sprintf("%s/rank %d is impatient", name, impatient), func(t *testing.T) {
				_, p := rejoinStore(t, plain)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				meet := func(rank int, most time.Duration) (line string, err error) {
					c, err := rejoin(ctx, p, rank, 2, most)
					if err != nil {
						return "", err
					}
					return c.home.line, errors.Join(c.Barrier(ctx), c.Close())
				}
				var failures atomic.Int64
				tried := make(chan struct{})
				var lines [2]string
				var errs [2]error
				var all sync.WaitGroup
				all.Go(func() {
					for ctx.Err() == nil {
						most := 50 * time.Millisecond
						if failures.Load() > 3 { // often enough; now it must succeed
							most = time.Minute
						}
						if lines[impatient], errs[impatient] = meet(impatient, most); errs[impatient] == nil {
							return
						}
						if failures.Add(1) == 3 {
							close(tried)
						}
					}
				})
				all.Go(func() {
					<-tried
					for ctx.Err() == nil {
						lines[1-impatient], errs[1-impatient] = meet(1-impatient, time.Minute)
						err := errs[1-impatient]
						if err == nil || !errors.Is(err, ErrRankLost) && !strings.Contains(err.Error(), "rank 0 has stopped waiting") {
							return
						}
					}
				})
				all.Wait()
				if err := errors.Join(errs[:]...); err != nil {
					t.Fatal(err)
				}
				if lines[0] != lines[1] {
					t.Errorf("the ranks have met in %q and %q", lines[0], lines[1])
				}
			})
		}
	}
}

// TestRejoinStorm has three ranks join and leave, and give up at any time. All of
// them must go on meeting each other, and no two jobs may have one name.
func TestRejoinStorm(t *testing.T) {
	const size, rounds = 3, 10
	_, p := rejoinStore(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var met [size]atomic.Int64
	var failures atomic.Int64
	done := func() bool {
		for r := range met {
			if met[r].Load() < rounds {
				return false
			}
		}
		return true
	}
	over, end := context.WithCancel(ctx)
	defer end()
	var lines sync.Map // of each rank: how often it was in a line
	var all sync.WaitGroup
	for rank := range size {
		all.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(rank)))
			for over.Err() == nil {
				most := time.Duration(random.IntN(15_000)) * time.Microsecond // a Join takes about as long
				if random.IntN(2) == 0 {
					most = time.Duration(10+random.IntN(400)) * time.Millisecond
				}
				c, err := rejoin(over, p, rank, size, most)
				if err != nil {
					failures.Add(1)
					continue
				}
				if _, again := lines.LoadOrStore(fmt.Sprint(rank, " ", c.home.line), true); again {
					t.Errorf("rank %d has joined %s twice", rank, c.home.line)
				}
				short, cancel := context.WithTimeout(ctx, time.Second)
				x := []int{1}
				err = c.AllReduce(short, Of(x), Sum)
				cancel()
				switch {
				case err == nil && x[0] != size:
					t.Errorf("rank %d: %d ranks", rank, x[0])
				case err == nil:
					met[rank].Add(1)
				}
				_ = c.Close()
				if done() {
					end()
				}
			}
		})
	}
	all.Wait()
	if !done() || failures.Load() == 0 {
		t.Errorf("the ranks met %d, %d and %d times, after %d failures", met[0].Load(), met[1].Load(), met[2].Load(), failures.Load())
	}
}

// TestJoinNotNoted has rank 0 find, when all have joined, that another attempt has
// its line. Its Join does not wait for the others to leave.
func TestJoinNotNoted(t *testing.T) {
	s, p := rejoinStore(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	keys := store.Prefix(s.Store(), "tutti/0")
	failed := make(chan error, 1)
	var began, ended time.Time
	go func() {
		_, err := rejoin(ctx, p, 0, 2, time.Minute)
		ended = time.Now()
		failed <- err
	}()
	if err := keys.Wait(ctx, "address/1"); err != nil {
		t.Fatal(err)
	}
	text, err := keys.Get(ctx, "attempt/1")
	if err != nil {
		t.Fatal(err)
	}
	// Rank 1 believes that the attempt has another line, and so has nothing to complain of.
	other := strings.Replace(string(text), `"line":1`, `"line":2`, 1)
	if err := errors.Join(keys.Set(ctx, "attempt/1", []byte(other)), keys.Set(ctx, "line/1", []byte("9"))); err != nil {
		t.Fatal(err)
	}
	c, err := rejoin(ctx, p, 1, 2, time.Minute)
	began = time.Now()
	// Rank 0 may have left before this rank had made its side of the group.
	if err != nil && !strings.Contains(err.Error(), "rank 0 has left: its Join failed") {
		t.Fatal(err)
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "attempt 9 of rank 0 was joined at the same time as attempt 1") {
		t.Error(err)
	}
	if took := ended.Sub(began); took > 20*time.Second {
		t.Errorf("rank 0 was waiting for %v until rank 1 had left", took)
	}
	_ = c.Close() // rank 0 is lost, or c is nil
}

// TestJoinGivenUp has ranks give up. Another process may take their rank, and the errors of
// other ranks do not name them as missing.
func TestJoinGivenUp(t *testing.T) {
	for name, plain := range map[string]bool{"launcher": false, "torchrun's agent": true} {
		t.Run(name, func(t *testing.T) {
			s, p := rejoinStore(t, plain)
			keys := store.Prefix(s.Store(), "tutti/0")
			if err := keys.Set(t.Context(), "rank/0", nil); err != nil { // it was refused
				t.Fatal(err)
			}
			for rank, want := range []string{1: "1 of 3 ranks joined; ranks 0 and 2 missing", 2: "2 of 3 ranks joined; rank 0 missing"} {
				if rank == 0 {
					continue
				}
				if _, err := rejoin(t.Context(), p, rank, 3, 300*time.Millisecond); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("rank %d: %v, want %q", rank, err, want)
				}
				text, err := keys.Get(t.Context(), fmt.Sprint("rank/", rank))
				if err != nil || !strings.Contains(string(text), `"left":true`) {
					t.Errorf("rank %d keeps its claim: %s, %v", rank, text, err)
				}
			}
		})
	}
}

// counter is a log that counts what has a text.
type counter struct {
	slog.Handler
	text string
	seen chan struct{} // has room for some
}

func (c *counter) Enabled(context.Context, slog.Level) bool { return true }

func (c *counter) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, c.text) {
		select {
		case c.seen <- struct{}{}:
		default:
		}
	}
	return nil
}

// TestJoinTaken has a process whose predecessor has lost the claim of its rank, and
// is still connected to rank 0. It comes again until that ends.
func TestJoinTaken(t *testing.T) {
	s, p := rejoinStore(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	refused := &counter{slog.DiscardHandler, "refused a connection", make(chan struct{}, 100)}
	comms, errs := make([]*Comm, 3), make([]error, 3)
	var all sync.WaitGroup
	join := func(rank int) {
		all.Go(func() {
			cfg := Config{Rank: rank, Size: 3, Secret: rejoinSecret, Logger: slog.New(refused)}
			cfg.fill()
			comms[rank], errs[rank] = joinJob(ctx, &cfg, p)
		})
	}
	join(0)
	addr, err := store.Prefix(s.Store(), "tutti/0").Get(ctx, "address/1")
	if err != nil {
		t.Fatal(err)
	}
	// Two of them: when one is refused, the other one is in.
	old, end := context.WithCancel(ctx)
	defer end()
	cfg := Config{Size: 3, Secret: rejoinSecret, Logger: slog.New(slog.DiscardHandler)}
	cfg.fill()
	over := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := cfg.enter(old, 1, 3, string(addr), nil, []byte(rejoinSecret))
			over <- err
		}()
	}
	if err := <-over; !errors.As(err, new(*control.TakenError)) {
		t.Fatal(err)
	}
	<-refused.seen
	join(1)
	for range 2 { // it comes again
		select {
		case <-refused.seen:
		case <-ctx.Done():
			t.Fatal("rank 1 was not refused twice")
		}
	}
	end()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	join(2)
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for r, c := range comms {
		all.Go(func() {
			if err := errors.Join(c.Barrier(ctx), c.Close()); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
}
