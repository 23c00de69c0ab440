package network

import (
	"slices"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// TestFailMessage checks which ranks a message reports as lost: its own, but only if the group has not
// failed before.
func TestFailMessage(t *testing.T) {
	for _, failed := range []bool{false, true} {
		e := &Engine{rank: 0, size: 4}
		e.opt.ParkingLot = wait.NewParkingLot(1)
		lost := &transport.LostError{Peer: 2, Err: transport.ErrClosed}
		err, want := error(lost), []int{1, 2, 3}
		if failed {
			e.Fail(&engine.Failure{Kind: engine.ErrRankLost, Lost: []int{2}, Err: lost, Told: true})
			err, want = wait.ErrStopped, []int{2}
		}
		f := e.failMessage(t.Context(), err, &engine.Message{Peer: engine.AnyRank})
		if !slices.Equal(f.Lost, want) || !slices.Equal(e.Failure().Lost, want) {
			t.Errorf("lost: %v, want %v", f.Lost, want)
		}
	}
}
