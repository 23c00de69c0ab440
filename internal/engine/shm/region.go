package shm

import (
	"slices"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Region is memory that processes have allocated together with Alloc. Base holds
// this process's mapping of each rank's part.
type Region struct {
	ID    uint64           // not zero; the same in all processes
	Base  []unsafe.Pointer // by rank
	Bytes int              // of each rank's part
}

// A regionAddr is an address in a region. It means the same in all processes.
type regionAddr struct {
	region uint64 // Region.ID; zero: not in a region
	off    int64  // offset in bytes
}

// A regionBuffer, in a slot, says where a rank's buffers are for the other ranks to
// read.
type regionBuffer struct {
	src, dst regionAddr
	n        int64   // elements of the source
	scale    float64 // factor by which a reader multiplies the elements
}

const regionBufferBytes = int(unsafe.Sizeof(regionBuffer{}))

// AddRegion lets operations on buffers in r work without copies through rings.
func (e *Engine) AddRegion(r Region) {
	e.g.mu.Lock()
	defer e.g.mu.Unlock()
	var list []Region
	if old := e.g.regions.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, r)
	e.g.regions.Store(&list)
}

// DropRegion undoes AddRegion. No collective on the region may be in progress. Messages that are
// being copied from it are complete when DropRegion returns.
func (e *Engine) DropRegion(id uint64) {
	e.g.mu.Lock()
	defer e.g.mu.Unlock()
	e.g.regionReads.Lock()
	defer e.g.regionReads.Unlock()
	if old := e.g.regions.Load(); old != nil {
		list := slices.DeleteFunc(slices.Clone(*old), func(r Region) bool { return r.ID == id })
		e.g.regions.Store(&list)
	}
}

// regionAddrOf returns the address of memory of this rank for the other ranks, or
// the zero value if the memory is not in a region.
func (e *Engine) regionAddrOf(p unsafe.Pointer, bytes int) regionAddr {
	list := e.g.regions.Load()
	if list == nil {
		return regionAddr{}
	}
	for _, r := range *list {
		off := int64(uintptr(p)) - int64(uintptr(r.Base[e.rank]))
		if off >= 0 && off+int64(bytes) <= int64(r.Bytes) {
			return regionAddr{r.ID, off}
		}
	}
	return regionAddr{}
}

// resolve returns this process's address of s in rank r's part. All ranks have all
// regions until they are freed. If a rank frees a region too early, resolve fails
// rather than let the ranks take different paths.
func (e *Engine) resolve(r int, s regionAddr) (unsafe.Pointer, error) {
	if reg := e.g.region(s.region); reg != nil {
		return unsafe.Add(reg.Base[r], s.off), nil
	}
	return nil, e.differ(engine.Facts{Event: engine.MemoryFreed, Sides: []engine.Side{{Rank: e.rank}, {Rank: r}}})
}

// region returns the region with an ID, or nil.
func (g *group) region(id uint64) *Region {
	if list := g.regions.Load(); list != nil {
		for i := range *list {
			if (*list)[i].ID == id {
				return &(*list)[i]
			}
		}
	}
	return nil
}

// announceRegion puts the location of this rank's buffers into the slot, if they
// are in regions. It reports whether they are.
func (e *Engine) announceRegion(h *header, c *engine.Call, dst bool) bool {
	p := regionBuffer{src: e.regionAddrOf(c.Src.Ptr, c.Src.Bytes()), n: int64(c.Src.N), scale: e.factor(c)}
	if p.src.region == 0 {
		return false
	}
	if dst {
		if p.dst = e.regionAddrOf(c.Dst.Ptr, c.Dst.Bytes()); p.dst.region == 0 {
			return false
		}
	}
	e.head.n = direct
	*(*regionBuffer)(h.dataAfterHeader(&e.head.sig)) = p
	return true
}

// allDirect waits for all ranks and reports whether all of them have announced
// buffers in regions. If so, e.peerExposures holds the buffers.
func (e *Engine) allDirect(c *engine.Call) (bool, error) {
	if e.peerExposures == nil {
		e.peerExposures = make([]exposure, len(e.g.boards))
	}
	for r := range e.g.boards {
		if r == e.rank {
			e.peerExposures[r] = exposure{src: c.Src, dst: c.Dst, scale: e.factor(c)}
			continue
		}
		h, err := e.awaitSlot(r)
		if err != nil {
			return false, err
		}
		if h.n != direct {
			return false, nil
		}
		p := (*regionBuffer)(h.data())
		x := exposure{src: c.Src, dst: c.Dst, scale: p.scale}
		if x.src.Ptr, err = e.resolve(r, p.src); err != nil {
			return false, err
		}
		if x.dst.Ptr, err = e.resolve(r, p.dst); err != nil {
			return false, err
		}
		e.peerExposures[r] = x
	}
	e.allDone = max(e.allDone, e.step-1)
	return true, nil
}
