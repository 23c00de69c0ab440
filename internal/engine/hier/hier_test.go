package hier

import (
	"testing"

	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/engine/shm"
)

// Hosts of different sizes, and hosts whose ranks are not consecutive, together cover all code.
// The other placements are special cases.
var (
	uneven      = hostSizes(3, 1, 2)
	interleaved = roundRobin(2)
)

func TestEngine(t *testing.T) {
	for name, place := range map[string]placement{"3+1+2": uneven, "round robin": interleaved} {
		t.Run(name, func(t *testing.T) { enginetest.Run(t, world(place, groupConfig{}), enginetest.Options{}) })
	}
}

func TestPlacements(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite in four more placements takes long")
	}
	for name, place := range map[string]placement{
		"2+2": hostSizes(2), "1+3": hostSizes(1, 3), "alone": hostSizes(1), "one host": roundRobin(1),
	} {
		t.Run(name, func(t *testing.T) { enginetest.Run(t, world(place, groupConfig{}), enginetest.Options{Light: true}) })
	}
}

// TestEngineInPieces uses tiny segments, so that small calls have many segments.
func TestEngineInPieces(t *testing.T) {
	k := groupConfig{opt: Options{Segment: 4000}, local: shm.Options{Small: 64, Piece: 256}}
	enginetest.Run(t, world(hostSizes(1, 3), k), enginetest.Options{Light: true})
}

func TestEngineReproducible(t *testing.T) {
	k := groupConfig{opt: Options{Reproducible: true}}
	enginetest.Run(t, world(uneven, k), enginetest.Options{RankOrder: true, Light: true})
}
