package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
)

// TestShrinkLocal has the goroutine ranks leave one after the other, until one remains. The others get
// ErrRankLost, and Shrink returns the same number of completed operations on all of them. The goroutine of
// each remaining rank writes its own element of next.
func TestShrinkLocal(t *testing.T) {
	comms := local(t, 5, tutti.Config{})
	for len(comms) > 1 {
		leaver := len(comms) / 2
		next := make([]*tutti.Comm, len(comms))
		all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
			x := []int{c.Rank()}
			for range 3 {
				if err := c.AllReduce(ctx, tutti.Of(x), tutti.Sum); err != nil {
					return err
				}
			}
			if c.Rank() == leaver {
				return c.Close()
			}
			err := c.AllReduce(ctx, tutti.Of(x), tutti.Sum)
			if !errors.Is(err, tutti.ErrRankLost) {
				return fmt.Errorf("%w, want a lost rank", err)
			}
			n, done, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if done != 3 {
				return fmt.Errorf("%d operations were done", done)
			}
			want := c.Rank()
			if want > leaver {
				want--
			}
			if n.Rank() != want || n.Size() != c.Size()-1 {
				return fmt.Errorf("rank %d of %d, was rank %d of %d", n.Rank(), n.Size(), c.Rank(), c.Size())
			}
			next[want] = n
			return c.Close()
		})
		comms = next[:len(comms)-1]
	}
	if err := comms[0].Close(); err != nil {
		t.Error(err)
	}
}

// TestShrinkQueue calls Shrink while operations are running and queued. All ranks get the same number of
// completed operations, and the operations up to it have succeeded. mu guards dones.
func TestShrinkQueue(t *testing.T) {
	comms := local(t, 4, tutti.Config{ShrinkTimeout: deadline})
	var mu sync.Mutex
	dones := make(map[uint64]int)
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		const n = 200
		xs := make([]tutti.Work, n)
		for i := range xs {
			var err error
			if xs[i], err = c.Batch().AllReduce(tutti.Of([]int{1}), tutti.Sum).Start(ctx); err != nil {
				break
			}
			if i == 20 && c.Rank() == 3 {
				break
			}
		}
		if c.Rank() == 3 {
			_ = xs[10].Wait(ctx)
		}
		next, done, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		defer next.Close()
		mu.Lock()
		dones[done]++
		mu.Unlock()
		for i, w := range xs[:min(done, n)] {
			if err := w.Wait(ctx); err != nil {
				return fmt.Errorf("operation %d of %d: %w", i+1, done, err)
			}
		}
		return next.Barrier(ctx)
	})
	if len(dones) != 1 {
		t.Errorf("ranks were told different numbers: %v", dones)
	}
}

// TestShrinkExcluded has a rank call Shrink too late. On a busy machine another
// rank may be late too; then the test repeats with more time.
func TestShrinkExcluded(t *testing.T) {
	shrinkTimeout := 20 * time.Millisecond
	for !oneRankExcluded(t, shrinkTimeout) && shrinkTimeout < deadline {
		shrinkTimeout *= 4
	}
	if shrinkTimeout >= deadline {
		t.Error("ranks that come are left behind")
	}
}

// oneRankExcluded has ranks 0 and 2 call Shrink while rank 1 waits until they are done. It reports whether
// both were in time; then rank 1's Comm is poisoned and its Shrink returns ErrExcluded. shrinkTimeout is how long
// Shrink waits for the missing rank.
func oneRankExcluded(t *testing.T, shrinkTimeout time.Duration) bool {
	t.Helper()
	comms := local(t, 3, tutti.Config{ShrinkTimeout: shrinkTimeout})
	var late atomic.Bool
	over := make(chan struct{})
	var rest sync.WaitGroup
	rest.Add(2)
	go func() {
		rest.Wait()
		close(over)
	}()
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 1 {
			if <-over; late.Load() {
				return nil
			}
			// The other ranks have ended this Comm.
			if err := c.Barrier(ctx); !errors.Is(err, tutti.ErrRevoked) || !strings.Contains(err.Error(), "Shrink was called on rank") {
				return fmt.Errorf("%w, want the end", err)
			}
			for range 2 {
				if _, _, err := c.Shrink(ctx); !errors.Is(err, tutti.ErrExcluded) || !strings.Contains(err.Error(), "ranks 0 and 2") {
					return fmt.Errorf("%w, want to be left behind", err)
				}
			}
			return nil
		}
		defer rest.Done()
		next, _, err := c.Shrink(ctx)
		if errors.Is(err, tutti.ErrExcluded) {
			late.Store(true)
			return nil
		}
		if err != nil {
			return err
		}
		defer next.Close()
		if next.Size() != 2 {
			late.Store(true)
		}
		return next.Barrier(ctx)
	})
	return !late.Load()
}

// TestShrinkGroup closes one rank of a group made by Split. The other ranks of the group shrink it; the Comm
// that it was made from is not affected.
func TestShrinkGroup(t *testing.T) {
	comms := local(t, 5, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		sub, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		defer sub.Close()
		if c.Rank() == 2 {
			_ = sub.Close()
		} else if c.Rank()%2 == 0 {
			if err := sub.Barrier(ctx); !errors.Is(err, tutti.ErrRankLost) {
				return fmt.Errorf("%w, want a lost rank", err)
			}
			next, _, err := sub.Shrink(ctx)
			if err != nil {
				return err
			}
			defer next.Close()
			x := []int{c.Rank()}
			if err := next.AllReduce(ctx, tutti.Of(x), tutti.Sum); err != nil || x[0] != 4 {
				return fmt.Errorf("%v, %w", x, err)
			}
		}
		return c.Barrier(ctx)
	})
}

// TestAgreeLocal calls Agree before and after rank 2 closes its Comm. Agree returns true only if all
// remaining ranks vote yes; the loss does not fail it.
func TestAgreeLocal(t *testing.T) {
	comms := local(t, 4, tutti.Config{})
	ask := func(ctx context.Context, c *tutti.Comm, yes, want bool) error {
		got, err := c.Agree(ctx, yes)
		if err != nil || got != want {
			return fmt.Errorf("%v, %w", got, err)
		}
		return nil
	}
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		if err := errors.Join(ask(ctx, c, true, true), ask(ctx, c, c.Rank() != 2, false)); err != nil {
			return err
		}
		if c.Rank() == 2 {
			return c.Close()
		}
		return errors.Join(ask(ctx, c, true, true), ask(ctx, c, c.Rank() == 0, false))
	})
}

// TestAgreeAgain cancels calls of Agree and repeats them. No rank may get the
// result of another call.
func TestAgreeAgain(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	gaveUp := make(chan struct{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 0 {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond) // rank 1 waits for its end
			defer cancel()
			if got, err := c.Agree(short, true); !errors.Is(err, tutti.ErrTimeout) {
				return fmt.Errorf("%v, %w, want ErrTimeout", got, err)
			}
			if _, err := c.Agree(ctx, false); !errors.Is(err, tutti.ErrInvalid) || !strings.Contains(err.Error(), "this rank has said true") {
				return fmt.Errorf("another answer to a question that is open: %w", err)
			}
			close(gaveUp)
		} else {
			<-gaveUp
		}
		// Call 1: rank 1 votes no. Call 2: both vote yes.
		for number, want := range []bool{false, true} {
			got, err := c.Agree(ctx, c.Rank() == 0 || want)
			if err != nil || got != want {
				return fmt.Errorf("question %d: %v, %w", number+1, got, err)
			}
		}
		return nil
	})
}

// TestAgreeRandomCancel settles many questions by Agree, which each rank gives up at
// random deadlines and then asks again. Each answer must be that of its own question.
// The first deadline is 0, so that each rank gives up every question at least once.
func TestAgreeRandomCancel(t *testing.T) {
	const questions, size = 60, 3
	comms := local(t, size, tutti.Config{})
	var givenUp atomic.Int64
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		random := rand.New(rand.NewPCG(1, uint64(c.Rank())))
		for number := range questions {
			want := number%(size+1) == size // otherwise one rank votes no
			vote := want || number%(size+1) != c.Rank()
			if random.IntN(3) == 0 {
				time.Sleep(2 * time.Millisecond) // the others may cancel meanwhile
			}
			for most := time.Duration(0); ; most = time.Duration(random.IntN(3000)) * time.Microsecond {
				short, cancel := context.WithTimeout(ctx, most)
				got, err := c.Agree(short, vote)
				cancel()
				if err == nil && got == want {
					break
				}
				if err == nil || !errors.Is(err, tutti.ErrTimeout) || ctx.Err() != nil {
					return fmt.Errorf("question %d: %v, want %v, %w", number, got, want, err)
				}
				givenUp.Add(1)
			}
		}
		return nil
	})
	if n := givenUp.Load(); n < questions {
		t.Errorf("questions were given up %d times", n)
	}
}

// TestShrinkErrors checks the errors of Shrink, Grow and Agree with invalid arguments, without a store,
// without other ranks, and after Close.
func TestShrinkErrors(t *testing.T) {
	comms := local(t, 2, tutti.Config{Timeout: 20 * time.Millisecond})
	c := comms[0]
	if _, _, err := c.Shrink(nil); !errors.Is(err, tutti.ErrInvalid) { //nolint:staticcheck // that is what is tested
		t.Error(err)
	}
	if _, _, err := (*tutti.Comm)(nil).Shrink(t.Context()); !errors.Is(err, tutti.ErrInvalid) {
		t.Error(err)
	}
	if _, err := c.Grow(t.Context(), 1); !errors.Is(err, tutti.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := c.Grow(t.Context(), -1); !errors.Is(err, tutti.ErrInvalid) {
		t.Error(err)
	}
	// No other rank calls Agree, and on a Comm without failure no rank counts as
	// lost.
	if _, err := c.Agree(t.Context(), true); !errors.Is(err, tutti.ErrTimeout) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := c.Shrink(t.Context()); !errors.Is(err, tutti.ErrClosed) {
		t.Error(err)
	}
}

// TestReplacedComm uses a Comm after its Shrink. All calls return ErrClosed, and the new Comm still works.
func TestReplacedComm(t *testing.T) {
	all(t, local(t, 2, tutti.Config{}), func(ctx context.Context, c *tutti.Comm) error {
		next, _, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		_, _, again := c.Shrink(ctx)
		_, grow := c.Grow(ctx, 0)
		_, agree := c.Agree(ctx, true)
		for _, err := range []error{again, grow, agree, c.Barrier(ctx), c.Send(ctx, 1-c.Rank(), tutti.Of([]int{1}), 0)} {
			if !errors.Is(err, tutti.ErrClosed) || !strings.Contains(err.Error(), "has replaced this Comm") || tutti.CanShrink(err) {
				return fmt.Errorf("the old Comm: %w", err)
			}
		}
		return errors.Join(next.Barrier(ctx), next.Close(), c.Close())
	})
}
