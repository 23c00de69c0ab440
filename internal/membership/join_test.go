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

// TestJoinMissing starts two of three ranks in goroutines, with and without a store, whose contexts end at
// about the same time. Both errors name the third rank. With a store, the lowest of the waiting ranks logs it.
func TestJoinMissing(t *testing.T) {
	for _, useStore := range []bool{false, true} {
		for missing := range 3 {
			if missing == 0 && !useStore {
				continue // nothing tells two ranks of each other
			}
			t.Run(fmt.Sprintf("store %v/without rank %d", useStore, missing), func(t *testing.T) {
				t.Parallel() // it mostly waits
				addr := proctest.FreeAddr(t)
				_, p := rejoinStore(t, false)
				var errs [3]error
				var logs [3]proctest.Output
				var ranks sync.WaitGroup
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for r := range 3 {
					if r == missing {
						continue
					}
					ranks.Go(func() {
						cfg := testConfig(p, r, 3, slog.New(slog.NewTextHandler(&logs[r], nil)))
						cfg.remind = 10 * time.Millisecond
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
						t.Errorf("rank %d: %v, want %q", r, err, want)
					}
				}
				line := `msg="tutti: Join waits for ranks" missing="rank 0" joined="2 of 3"`
				if missing == 0 && (!strings.Contains(logs[1].String(), line) || strings.Contains(logs[2].String(), line)) {
					t.Errorf("rank 1 logs:\n%s\nrank 2 logs:\n%s\nwant %s on rank 1", &logs[1], &logs[2], line)
				}
			})
		}
	}
}
