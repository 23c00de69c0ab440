package ncclsys

import (
	"slices"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/dl"
)

// An Around says how to make calls on a communicator. The bracket makes its device's context
// current. If Held is not nil, operations are recorded there and not made.
type Around struct {
	dl.Bracket
	Held *Held
}

// A Held is a list of recorded calls. Only one goroutine may use it at a time, apart from
// Stop.
type Held struct {
	calls []dl.Call
	// Stop, if not zero, keeps Flush from making further calls. It may be set at any time,
	// from any goroutine.
	Stop atomic.Uint32
}

// Drop discards the recorded calls.
func (h *Held) Drop() { h.calls = h.calls[:0] }

// Empty reports whether no calls are recorded.
func (h *Held) Empty() bool { return len(h.calls) == 0 }

// Flush makes the recorded calls in order, until one fails or Stop is set. It discards the
// calls that it has not made.
func (l *Library) Flush(in *dl.Bracket, h *Held) (stopped bool, err error) {
	defer h.Drop()
	before, code, made := dl.CallAll(in, h.calls, &h.Stop)
	if made > 0 && int32(code) != 0 {
		i := slices.Index(l.fn[:], h.calls[made-1].Fn)
		return false, l.callError(before, code, i)
	}
	return made < len(h.calls) || h.Stop.Load() != 0, l.callError(before, 0, 0)
}
