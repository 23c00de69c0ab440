package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// Options configure an Engine. The Engine owns the inner engines and closes them. Each inner
// engine applies its own timeout to its steps. The inner engines need no OnFail: this engine
// reports their failures, and sets Told in the failures that it passes to them.
type Options struct {
	Rank int
	// Hosts holds, for each rank, the lowest rank on its host. It is the same on all ranks.
	Hosts []int
	// Local is the group of the ranks of this host, in ascending order. A host with one rank
	// has it, too.
	Local engine.Engine
	// Leaders is the group of the lowest ranks of all hosts, in ascending order. It must be a
	// nil interface on all other ranks.
	Leaders engine.Engine
	// All is the group of all ranks.
	All engine.Engine

	// Reproducible makes reductions combine in rank order. All must have the same setting.
	Reproducible bool
	// Segment is the number of bytes of a long vector that one step moves. Zero means 1 MiB.
	// Tests make it small. It must be the same on all ranks.
	Segment int

	// OnFail is called once with a failure that began on this rank, before the engine takes it
	// as its cause. The owner notifies the other ranks. If it knows of an earlier failure, it
	// calls Fail with that one, with Told set. OnFail must not block. Nil means no
	// notification.
	OnFail func(*engine.Failure)
	// Sub and Alloc implement the methods of engine.Engine with these names.
	Sub   func(ctx context.Context, seq uint64, members []int) (engine.Engine, error)
	Alloc func(ctx context.Context, seq uint64, bytes int) (*engine.Region, error)
}

const defaultSegment = 1 << 20
