package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/proctest"
)

// TestBoundJoin checks what bounds Join: a deadline of the context, or five minutes without one. A newcomer
// waits without a bound.
func TestBoundJoin(t *testing.T) {
	own, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		late bool
		want time.Duration // zero: none
	}{
		"no deadline":           {context.Background(), false, joinTimeout},
		"deadline":              {own, false, time.Hour},
		"newcomer":              {context.Background(), true, 0},
		"newcomer and deadline": {own, true, time.Hour},
	} {
		ctx, cancel := boundJoin(c.ctx, &Config{Late: c.late, Timeout: time.Second})
		until, bounded := ctx.Deadline()
		if left := time.Until(until); bounded != (c.want > 0) || bounded && (left > c.want || left < c.want-time.Minute) {
			t.Errorf("%s: bounded %v, %v are left, want %v", name, bounded, left, c.want)
		}
		cancel()
	}
}

// TestJoinMissing starts two of three ranks, with and without a store, whose contexts end at about the same
// time. Both errors name the third rank. With a store, the lowest of the waiting ranks logs it. On a busy
// machine the ranks may not be connected in time; then the test repeats with more time.
func TestJoinMissing(t *testing.T) {
	for _, useStore := range []bool{false, true} {
		for missing := range 3 {
			if missing == 0 && !useStore {
				continue // nothing tells two ranks of each other
			}
			t.Run(fmt.Sprintf("store %v/without rank %d", useStore, missing), func(t *testing.T) {
				t.Parallel() // it mostly waits
				for limit := 500 * time.Millisecond; ; limit *= 4 {
					problem := joinWithout(t, missing, useStore, limit)
					if problem == nil {
						return
					}
					if limit > time.Minute {
						t.Fatal(problem)
					}
				}
			})
		}
	}
}

// joinWithout runs Join on two of three ranks, each in a goroutine that writes only its own error. It returns
// what is wrong.
func joinWithout(t *testing.T, missing int, useStore bool, limit time.Duration) error {
	t.Helper()
	addr := proctest.FreeAddr(t)
	_, p := rejoinStore(t, false)
	var errs [3]error
	var logs [3]proctest.Output
	var ranks sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for r := range 3 {
		if r == missing {
			continue
		}
		ranks.Go(func() {
			cfg := testConfig(p, r, 3, slog.New(slog.NewTextHandler(&logs[r], nil)))
			cfg.remind = limit / 50
			if !useStore {
				cfg.place, cfg.Addr = nil, addr
			}
			_, errs[r] = Join(ctx, cfg)
		})
	}
	ranks.Wait()
	want := fmt.Sprintf("2 of 3 ranks joined; rank %d missing", missing)
	for r, err := range errs {
		if r != missing && (!errors.Is(err, engine.ErrTimeout) && !errors.Is(err, engine.ErrAborted) || strings.Count(err.Error(), want) != 1) {
			return fmt.Errorf("after %v, rank %d: %w, want %q", limit, r, err, want)
		}
	}
	line := `msg="tutti: Join waits for ranks" missing="rank 0" joined="2 of 3"`
	if missing == 0 && (!strings.Contains(logs[1].String(), line) || strings.Contains(logs[2].String(), line)) {
		return fmt.Errorf("after %v, rank 1 logs:\n%s\nrank 2 logs:\n%s\nwant %s on rank 1 alone", limit, &logs[1], &logs[2], line)
	}
	return nil
}
