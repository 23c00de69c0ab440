package membership

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
	"unsafe"

	"github.com/tutti-go/tutti/internal/control"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/store"
)

// rejoinStore starts a store like a launcher's, or like that of torchrun's agent.
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
	return s, &launchenv.Place{Store: s.Addr().String(), Plain: plain, Attempt: "0"}
}

const rejoinSecret = "0123456789abcdef0123456789abcdef"

// testConfig returns the options of a rank of this process.
func testConfig(p *launchenv.Place, rank, size int, log *slog.Logger) *Config {
	return &Config{
		Rank: rank, Size: size, Secret: rejoinSecret, Timeout: 5 * time.Minute, ShrinkTimeout: 10 * time.Second, Logger: log, place: p,
	}
}

// rejoin is Join of a rank of this process, with a timeout.
func rejoin(ctx context.Context, p *launchenv.Place, rank, size int, timeout time.Duration) (*Membership, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return Join(ctx, testConfig(p, rank, size, slog.New(slog.DiscardHandler)))
}

// barrier runs a Barrier as operation 1.
func barrier(ctx context.Context, m *Membership) error {
	return m.engine.Run(ctx, 1, []engine.Call{{Verb: engine.Barrier}})
}

// countRanks runs an AllReduce as operation 1. It returns the sum of one 1 for each rank.
func countRanks(ctx context.Context, m *Membership) (int64, error) {
	sum := []int64{1}
	mem := engine.Mem{Ptr: unsafe.Pointer(&sum[0]), N: 1, Type: kernel.Int64}
	err := m.engine.Run(ctx, 1, []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Sum, Dst: mem, Src: mem}})
	return sum[0], err
}

// TestRejoin has one rank call Join repeatedly with a short timeout. Another rank that joins
// with a long timeout must join the same Comm. If the first rank times out just when the
// other joins, the other's Join or Barrier fails, and it joins again. Each rank's goroutine
// sets only its own lineage and error.
func TestRejoin(t *testing.T) {
	for name, plain := range map[string]bool{"launcher": false, "torchrun's agent": true} {
		for impatient := range 2 {
			t.Run(fmt.Sprintf("%s/rank %d is impatient", name, impatient), func(t *testing.T) {
				_, p := rejoinStore(t, plain)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				join := func(rank int, timeout time.Duration) (lineage string, err error) {
					m, err := rejoin(ctx, p, rank, 2, timeout)
					if err != nil {
						return "", err
					}
					return m.lineage, errors.Join(barrier(ctx, m), m.engine.Close())
				}
				var failures atomic.Int64
				tried := make(chan struct{})
				var lineages [2]string
				var errs [2]error
				var all sync.WaitGroup
				all.Go(func() {
					for ctx.Err() == nil {
						timeout := 50 * time.Millisecond
						if failures.Load() > 3 { // now it must succeed
							timeout = time.Minute
						}
						if lineages[impatient], errs[impatient] = join(impatient, timeout); errs[impatient] == nil {
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
						lineages[1-impatient], errs[1-impatient] = join(1-impatient, time.Minute)
						err := errs[1-impatient]
						if err == nil || !errors.Is(err, engine.ErrRankLost) && !strings.Contains(err.Error(), "rank 0 has stopped waiting") {
							return
						}
					}
				})
				all.Wait()
				if err := errors.Join(errs[:]...); err != nil {
					t.Fatal(err)
				}
				if lineages[0] != lineages[1] {
					t.Errorf("the ranks have joined %q and %q", lineages[0], lineages[1])
				}
			})
		}
	}
}

// TestRejoinStorm has three ranks join and leave, and time out at any time. All of them must
// continue to join the same Comms, and no two jobs may have one lineage.
func TestRejoinStorm(t *testing.T) {
	const size, rounds = 3, 10
	_, p := rejoinStore(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var joined [size]atomic.Int64
	var failures atomic.Int64
	done := func() bool {
		for r := range joined {
			if joined[r].Load() < rounds {
				return false
			}
		}
		return true
	}
	over, end := context.WithCancel(ctx)
	defer end()
	var lineages sync.Map // the keys are "rank lineage"
	var all sync.WaitGroup
	for rank := range size {
		all.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(rank)))
			for over.Err() == nil {
				timeout := time.Duration(random.IntN(15_000)) * time.Microsecond // about the duration of a Join
				if random.IntN(2) == 0 {
					timeout = time.Duration(10+random.IntN(400)) * time.Millisecond
				}
				m, err := rejoin(over, p, rank, size, timeout)
				if err != nil {
					failures.Add(1)
					continue
				}
				if _, again := lineages.LoadOrStore(fmt.Sprint(rank, " ", m.lineage), true); again {
					t.Errorf("rank %d has joined %s twice", rank, m.lineage)
				}
				short, cancel := context.WithTimeout(ctx, time.Second)
				n, err := countRanks(short, m)
				cancel()
				switch {
				case err == nil && n != size:
					t.Errorf("rank %d: %d ranks", rank, n)
				case err == nil:
					joined[rank].Add(1)
				}
				_ = m.engine.Close()
				if done() {
					end()
				}
			}
		})
	}
	all.Wait()
	if !done() || failures.Load() == 0 {
		t.Errorf("the ranks joined %d, %d and %d times, after %d failures", joined[0].Load(), joined[1].Load(), joined[2].Load(), failures.Load())
	}
}

// TestJoinLineageTaken has rank 0 find, when all ranks have joined, that another attempt has
// its lineage. Its Join does not wait for the other ranks to leave.
func TestJoinLineageTaken(t *testing.T) {
	s, p := rejoinStore(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	keys := store.Prefix(s.Store(), jobstore.Ranks("0"))
	failed := make(chan error, 1)
	var began, ended time.Time
	go func() {
		_, err := rejoin(ctx, p, 0, 2, time.Minute)
		ended = time.Now()
		failed <- err
	}()
	if err := keys.Wait(ctx, jobstore.Address(1)); err != nil {
		t.Fatal(err)
	}
	text, err := keys.Get(ctx, jobstore.Attempt(1))
	if err != nil {
		t.Fatal(err)
	}
	// Rank 1 reads another lineage, which is free, and so reports no error.
	other := strings.Replace(string(text), `"line":1`, `"line":2`, 1)
	if err := errors.Join(keys.Set(ctx, jobstore.Attempt(1), []byte(other)), keys.Set(ctx, jobstore.Lineage(1), []byte("9"))); err != nil {
		t.Fatal(err)
	}
	m, err := rejoin(ctx, p, 1, 2, time.Minute)
	began = time.Now()
	// Rank 0 may have left before this rank has its engine.
	if err != nil && !strings.Contains(err.Error(), "rank 0 has left: Join failed") {
		t.Fatal(err)
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "attempt 9 of rank 0 was joined at the same time as attempt 1") {
		t.Error(err)
	}
	if took := ended.Sub(began); took > 20*time.Second {
		t.Errorf("rank 0 waited for %v until rank 1 had left", took)
	}
	if m != nil {
		_ = m.engine.Close() // rank 0 is lost
	}
}

// TestJoinTimeout has ranks time out. Another process may take their rank, and the errors of
// other ranks do not name them as missing.
func TestJoinTimeout(t *testing.T) {
	for name, plain := range map[string]bool{"launcher": false, "torchrun's agent": true} {
		t.Run(name, func(t *testing.T) {
			s, p := rejoinStore(t, plain)
			keys := store.Prefix(s.Store(), jobstore.Ranks("0"))
			if err := keys.Set(t.Context(), jobstore.Rank(0), nil); err != nil { // it was refused
				t.Fatal(err)
			}
			for rank, want := range []string{1: "1 of 3 ranks joined; ranks 0 and 2 missing", 2: "2 of 3 ranks joined; rank 0 missing"} {
				if rank == 0 {
					continue
				}
				if _, err := rejoin(t.Context(), p, rank, 3, 300*time.Millisecond); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("rank %d: %v, want %q", rank, err, want)
				}
				text, err := keys.Get(t.Context(), jobstore.Rank(rank))
				if err != nil || !strings.Contains(string(text), `"left":true`) {
					t.Errorf("rank %d keeps its claim: %s, %v", rank, text, err)
				}
			}
		})
	}
}

// A counter is a log handler that counts the messages that contain a text.
type counter struct {
	slog.Handler
	text string
	seen chan struct{} // receives one value for each message, up to its capacity
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

// TestJoinTaken has a process whose predecessor has lost the claim of its rank, and is still
// connected to rank 0. The process connects again until the predecessor has exited.
func TestJoinTaken(t *testing.T) {
	s, p := rejoinStore(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	refused := &counter{slog.DiscardHandler, "refused a connection", make(chan struct{}, 100)}
	list, errs := make([]*Membership, 3), make([]error, 3)
	var all sync.WaitGroup
	join := func(rank int) {
		all.Go(func() {
			list[rank], errs[rank] = Join(ctx, testConfig(p, rank, 3, slog.New(refused)))
		})
	}
	join(0)
	addr, err := store.Prefix(s.Store(), jobstore.Ranks("0")).Get(ctx, jobstore.Address(1))
	if err != nil {
		t.Fatal(err)
	}
	// There are two predecessors: when one is refused, the other has joined.
	old, end := context.WithCancel(ctx)
	defer end()
	cfg := testConfig(nil, 0, 3, slog.New(slog.DiscardHandler))
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
	for range 2 { // it connects again
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
	for r, m := range list {
		all.Go(func() {
			if err := errors.Join(barrier(ctx, m), m.engine.Close()); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
}
