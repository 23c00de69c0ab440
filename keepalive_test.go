package tutti_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/proctest"
)

// joinTwo is joinRanks with two ranks of one Config.
func joinTwo(t *testing.T, cfg tutti.Config, do func(ctx context.Context, c *tutti.Comm) error) [2]error {
	return [2]error(joinRanks(t, []tutti.Config{cfg, cfg}, do))
}

// joinRanks joins ranks on the loopback, each in a goroutine, runs do on each, closes them, and returns the
// errors by rank. It begins again with another port if another process has taken the free one.
func joinRanks(t *testing.T, cfgs []tutti.Config, do func(ctx context.Context, c *tutti.Comm) error) []error {
	errs := make([]error, len(cfgs))
	errs[0] = syscall.EADDRINUSE
	for errors.Is(errs[0], syscall.EADDRINUSE) { // another process may have taken the free port
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		addr := proctest.FreeAddr(t)
		var ranks sync.WaitGroup
		for r, mine := range cfgs {
			mine.Rank, mine.Size, mine.Addr = r, len(cfgs), addr
			ranks.Go(func() {
				c, err := tutti.Join(ctx, mine)
				if err == nil {
					err = errors.Join(do(ctx, c), c.Close())
				}
				if errs[r] = err; errors.Is(err, syscall.EADDRINUSE) {
					cancel()
				}
			})
		}
		ranks.Wait()
		cancel()
	}
	return errs
}

// TestJoinHostTimeout joins with values of HostTimeout that the kernel cannot represent:
// too long for keep-alive (28 hours), too long for TCP_USER_TIMEOUT (30 days), and
// shorter than the unit of either.
func TestJoinHostTimeout(t *testing.T) {
	for _, hostTimeout := range []time.Duration{1, time.Millisecond, 28 * time.Hour, 30 * 24 * time.Hour, math.MaxInt64} {
		errs := joinTwo(t, tutti.Config{HostTimeout: hostTimeout}, func(ctx context.Context, c *tutti.Comm) error {
			in, out := make([]int32, 5), make([]int32, 5)
			peer := 1 - c.Rank()
			return c.SendRecv(ctx, peer, tutti.Of(out), peer, tutti.Of(in), 0)
		})
		if err := errors.Join(errs[:]...); err != nil {
			t.Errorf("%v: %v", hostTimeout, err)
		}
	}
	_, err := tutti.Join(t.Context(), tutti.Config{Rank: 0, Size: 2, Addr: "127.0.0.1:1", HostTimeout: -1})
	if !errors.Is(err, tutti.ErrInvalid) || !strings.Contains(err.Error(), "Config.HostTimeout") {
		t.Errorf("a negative one: %v", err)
	}
}
