package shm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
)

// world returns a function that makes groups of goroutines.
func world(opt Options) enginetest.World {
	return func(_ testing.TB, ranks int) []engine.Engine {
		engines := make([]engine.Engine, ranks)
		for i, e := range NewLocal(ranks, opt) {
			engines[i] = e
		}
		return engines
	}
}

func TestEngine(t *testing.T) {
	enginetest.Run(t, world(Options{}), enginetest.Options{RankOrder: true})
}

// TestEngineInPieces runs the suite with tiny slots and pieces, so that little data
// reaches every path.
func TestEngineInPieces(t *testing.T) {
	tiny := Options{Small: 64, Piece: 256}
	enginetest.Run(t, world(tiny), enginetest.Options{RankOrder: true, Light: true})
}

// TestTimeout checks that a group's own timeout ends operations whose context has
// no deadline.
func TestTimeout(t *testing.T) {
	ranks := NewLocal(2, Options{Timeout: time.Millisecond})
	err := ranks[0].Run(t.Context(), 1, []engine.Call{{Verb: engine.Barrier}})
	if !errors.Is(err, engine.ErrTimeout) || !strings.Contains(err.Error(), "rank 1 has not arrived") {
		t.Errorf("a barrier without rank 1: %v", err)
	}
	if again := ranks[1].Run(t.Context(), 1, []engine.Call{{Verb: engine.Barrier}}); again == nil || again.Error() != err.Error() {
		t.Errorf("rank 1 comes late and gets %v, rank 0 got %v", again, err)
	}
}
