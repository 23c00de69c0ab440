package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// Options are what an engine is made of. The inner engines are made for it
// alone; each bounds its own operations in time. They need nobody to tell of
// failures, because this engine does it: a failure that they are told of is
// marked as Told.
type Options struct {
	Rank int
	// Hosts names each rank's host by the lowest rank on it. It is the same on
	// all ranks.
	Hosts []int
	// Local is the group of the ranks of this host, in their order, also if
	// there is only one.
	Local engine.Engine
	// Leaders is the group of the first ranks of all hosts, in their order. It
	// is nil on all other ranks, and there the interface itself is.
	Leaders engine.Engine
	// All is the group of all ranks.
	All engine.Engine

	// Reproducible makes reductions combine in rank order. All must have been
	// made so, too.
	Reproducible bool
	// Segment is how many bytes of a long vector are on their way up, across or
	// down at a time. Zero: 1 MiB. Tests make it small. It is the same on all
	// ranks.
	Segment int

	// OnFail is told of a failure that began on this rank, once, before the
	// engine takes it as its cause. The owner tells the other ranks; if it knows
	// of an earlier failure, it calls Fail with that, marked as Told. OnFail
	// must not block. Nil: nobody is told.
	OnFail func(*engine.Failure)
	// Sub and Alloc make what needs more than these groups, as engine.Engine
	// says.
	Sub   func(ctx context.Context, seq uint64, members []int) (engine.Engine, error)
	Alloc func(ctx context.Context, seq uint64, bytes int) (*engine.Region, error)
}

const defaultSegment = 1 << 20

// Mute stands for the engine of a Local group's own messages, which are never
// sent: messages go through All.
type Mute struct{ engine.Engine }

// Fail does nothing.
func (Mute) Fail(*engine.Failure) {}

// Close does nothing.
func (Mute) Close() error { return nil }
