package gpu

import (
	"errors"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/nccl"
)

// TestCommAfterClose creates a communicator after the group has failed and its engine is closed, as
// an abandoned message can: the communicator is aborted.
func TestCommAfterClose(t *testing.T) {
	clean(t)
	for range 20 {
		e := newEngines(t, 1, engine.DeviceOptions{})[0]
		id, err := e.lib.NewID()
		ok(t, err)
		comm, err := e.lib.Init(t.Context(), e.dev, id, 0, 1, nccl.Config{NonBlocking: true})
		ok(t, err)
		e.Fail(&engine.Failure{Kind: engine.ErrAborted, Facts: engine.Facts{Text: "enough"}})
		ok(t, e.Close())
		e.addComm(comm)
		for begin := time.Now(); !errors.Is(comm.AsyncError(), nccl.ErrAborted); time.Sleep(time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatal("it is not aborted")
			}
		}
	}
}
