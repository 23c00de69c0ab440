package job

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// TestNestedGroups repeatedly makes a group from the last group and closes the last one, as a program does
// that replaces its group now and then. Each rank is a goroutine with a job of its own.
func TestNestedGroups(t *testing.T) {
	const ranks, depth = 2, 100
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	var all sync.WaitGroup
	for r := range ranks {
		all.Go(func() {
			cfg := Config{
				Rank: r, Size: ranks, Addr: l.Addr().String(), Secret: []byte("test"), Timeout: time.Minute,
				Logger: slog.New(slog.DiscardHandler),
			}
			if r == 0 {
				cfg.Listener = l
			}
			e, err := enterWorld(ctx, cfg)
			for i := 0; i < depth && err == nil; i++ {
				e, err = replaced(ctx, e)
				if err != nil {
					t.Errorf("rank %d, group %d: %v", r, i+1, err)
				}
			}
			if e != nil {
				err = errors.Join(err, e.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// replaced returns a group of the same ranks as e, and closes e.
func replaced(ctx context.Context, e engine.Engine) (engine.Engine, error) {
	if err := e.Run(ctx, 1000, []engine.Call{{Verb: engine.Dup}}); err != nil {
		return e, err
	}
	next, err := e.Sub(ctx, 1000, []int{0, 1})
	if err != nil {
		return e, err
	}
	return next, e.Close()
}
