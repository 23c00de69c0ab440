package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// TestJoinFailsLate ends one rank's context near the end of Join, until this rank's Join has failed
// and the other's has not. The other rank's first operation must then fail with ErrRankLost instead
// of waiting. In some cases this is so rare that it is not required.
func TestJoinFailsLate(t *testing.T) {
	const most = 200
	happened := 0
	for _, network := range []bool{false, true} {
		for impatient := range 2 {
			t.Run(fmt.Sprintf("network %v/rank %d is impatient", network, impatient), func(t *testing.T) {
				random := rand.New(rand.NewPCG(3, uint64(impatient)))
				limit := 2 * time.Millisecond
				for i := range most {
					own, other := joinLate(t, network, impatient, limit)
					switch {
					case own == nil: // both have joined
						limit -= time.Duration(random.Int64N(int64(limit / 8)))
					case other == nil:
						t.Logf("after %d Joins, with %v", i+1, limit)
						happened++
						return
					default:
						limit += time.Duration(random.Int64N(int64(limit / 8)))
					}
				}
			})
		}
	}
	if happened == 0 {
		t.Error("it did not happen")
	}
}

// joinLate lets two ranks join, each in a goroutine, one of them with a time limit, and returns the error of
// that one's Join and the other's. If one of them has joined alone, its first operation must fail with
// ErrRankLost.
func joinLate(t *testing.T, network bool, impatient int, limit time.Duration) (own, other error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	patience, giveUp := context.WithTimeout(t.Context(), deadline)
	defer giveUp()
	var engines [2]engine.Engine
	var errs [2]error
	var all sync.WaitGroup
	for r := range engines {
		all.Go(func() {
			ctx := patience
			cfg := Config{
				Rank: r, Size: 2, Addr: l.Addr().String(), Secret: []byte("test"), Timeout: deadline, Network: network,
				Logger: slog.New(slog.DiscardHandler),
			}
			if r == 0 {
				cfg.Listener = l
			}
			if r == impatient {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, limit)
				defer stop()
			}
			engines[r], errs[r] = enterWorld(ctx, cfg)
			switch {
			case errs[r] == nil:
			case r == impatient:
				time.AfterFunc(100*time.Millisecond, giveUp) // the other rank may not be connected yet
			case strings.Contains(errs[r].Error(), "this rank has left the job"):
				t.Errorf("rank %d was not told why: %v", r, errs[r])
			}
		})
	}
	all.Wait()
	for r, e := range engines {
		if e == nil {
			continue
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			err := e.Run(ctx, 1, []engine.Call{{Verb: engine.Barrier}})
			if errs[1-r] == nil {
				if err != nil {
					t.Errorf("both have joined; rank %d: %v", r, err)
				}
			} else if !errors.Is(err, engine.ErrRankLost) {
				t.Errorf("rank %d, while rank %d failed with %v: %v", r, 1-r, errs[1-r], err)
			}
			_ = e.Close()
		})
	}
	all.Wait()
	return errs[impatient], errs[1-impatient]
}
