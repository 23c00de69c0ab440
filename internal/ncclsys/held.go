package ncclsys

import (
	"slices"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/dl"
)

// An Around is what operations on a communicator are put into a stream by: the bracket
// that makes its device's context current and, if there is one, what holds them.
type Around struct {
	dl.Bracket
	Held *Held
}

// A Held holds calls that were not made yet. It may not be shared.
type Held struct {
	calls []dl.Call
	// Stop, if it is not zero, keeps Flush from making further calls. It may be set at
	// any time.
	Stop atomic.Uint32
}

// Drop forgets the calls.
func (h *Held) Drop() { h.calls = h.calls[:0] }

// Empty reports whether there are none.
func (h *Held) Empty() bool { return len(h.calls) == 0 }

// Flush makes the calls that are held, in their order, until one fails or it is stopped.
// Those that were not made are forgotten.
func (l *Library) Flush(in *dl.Bracket, h *Held) (stopped bool, err error) {
	defer h.Drop()
	before, code, made := dl.CallAll(in, h.calls, &h.Stop)
	if made > 0 && int32(code) != 0 {
		i := slices.Index(l.fn[:], h.calls[made-1].Fn)
		return false, l.enqueued(before, code, i)
	}
	return made < len(h.calls) || h.Stop.Load() != 0, l.enqueued(before, 0, 0)
}
