package hier

import (
	"testing"

	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/engine/shm"
)

// uneven hosts and hosts whose ranks are not neighbours reach all there is; the
// other placements are special cases.
var (
	uneven     = inTurns(3, 1, 2)
	notInOrder = roundRobin(2)
)

func TestEngine(t *testing.T) {
	for name, place := range map[string]placement{"3+1+2": uneven, "round robin": notInOrder} {
		t.Run(name, func(t *testing.T) { enginetest.Run(t, world(place, kit{}), enginetest.Options{}) })
	}
}

func TestPlacements(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite in four more placements takes long")
	}
	for name, place := range map[string]placement{
		"2+2": inTurns(2), "1+3": inTurns(1, 3), "alone": inTurns(1), "one host": roundRobin(1),
	} {
		t.Run(name, func(t *testing.T) { enginetest.Run(t, world(place, kit{}), enginetest.Options{Light: true}) })
	}
}

// With tiny segments little data goes in many waves.
func TestEngineInPieces(t *testing.T) {
	k := kit{opt: Options{Segment: 4000}, local: shm.Options{Small: 64, Piece: 256}}
	enginetest.Run(t, world(inTurns(1, 3), k), enginetest.Options{Light: true})
}

func TestEngineReproducible(t *testing.T) {
	k := kit{opt: Options{Reproducible: true}}
	enginetest.Run(t, world(uneven, k), enginetest.Options{RankOrder: true, Light: true})
}
