package shm

import "github.com/tutti-go/tutti/internal/prefetch"

// Other ranks have read the cache lines that this rank writes next, and they poll
// the headers of its slots. Each line must come back from their caches before a
// store to it becomes visible, and stores become visible in order. The engine
// therefore prefetches lines early, so that they arrive during other work.

// prefetchMax is the largest data, in bytes, that is prefetched. A core can wait
// for only a few lines at a time.
const prefetchMax = 4 << 10

// prefetchSlot prefetches for writing the next slot: its header and its data.
func (e *Engine) prefetchSlot(bytes int) {
	if bytes > prefetchMax {
		bytes = 0
	}
	prefetch.Write(e.board.slot(e.step+1).at(0), headerBytes+bytes)
}

// prefetchNextSlots prefetches for writing the data areas of the next two slots,
// for calls as large as the present one. Two, because a call without data may come
// between. Smaller data arrives in time without it. Headers are left out, because
// polling ranks would take them back.
func (e *Engine) prefetchNextSlots(bytes int) {
	const minBytes = 512
	if bytes > minBytes && bytes <= prefetchMax {
		prefetch.Write(e.board.slot(e.step+1).at(headerBytes), bytes)
		prefetch.Write(e.board.slot(e.step+2).at(headerBytes), bytes)
	}
}

// prefetchData prefetches for reading the data of another rank's slot whose header
// has just arrived. The data arrives while the fingerprints are compared. Data in
// the tail has arrived with the header, and the hardware prefetcher handles larger
// data.
func prefetchData(h *header) {
	if bytes := int(h.n) * h.sig.Type.Size(); bytes > len(h.tail) && bytes <= prefetchMax {
		prefetch.Read(h.dataAfterHeader(&h.sig), bytes)
	}
}
