package shm

import (
	"slices"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Region is memory that processes have allocated together: this process's
// mappings of every rank's.
type Region struct {
	ID    uint64 // not zero
	Base  []unsafe.Pointer
	Bytes int
}

// A spot is an address that means the same to all processes.
type regionAddr struct {
	region uint64 // zero: none
	off    int64
}

// A place, in a slot, says where a rank's buffers are for others to read.
type regionBuffer struct {
	src, dst regionAddr
	n        int64 // elements of the source
	scale    float64
}

const regionBufferBytes = int(unsafe.Sizeof(regionBuffer{}))

// AddRegion makes operations on a region go without copies through segments.
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

// DropRegion ends that. No operation on the region may be under way.
func (e *Engine) DropRegion(id uint64) {
	e.g.mu.Lock()
	defer e.g.mu.Unlock()
	if old := e.g.regions.Load(); old != nil {
		list := slices.DeleteFunc(slices.Clone(*old), func(r Region) bool { return r.ID == id })
		e.g.regions.Store(&list)
	}
}

// spotOf is where others find a buffer of this rank's; none if it is not in a
// region.
func (e *Engine) regionAddrOf(m engine.Mem) regionAddr {
	list := e.g.regions.Load()
	if list == nil {
		return regionAddr{}
	}
	for _, r := range *list {
		off := int64(uintptr(m.Ptr)) - int64(uintptr(r.Base[e.rank]))
		if off >= 0 && off+int64(m.Bytes()) <= int64(r.Bytes) {
			return regionAddr{r.ID, off}
		}
	}
	return regionAddr{}
}

// find is this process's address of rank r's spot. All ranks have all regions until
// they are freed; one that is freed too soon must not lead them different ways.
func (e *Engine) resolve(r int, s regionAddr) (unsafe.Pointer, error) {
	if list := e.g.regions.Load(); list != nil {
		for _, reg := range *list {
			if reg.ID == s.region {
				return unsafe.Add(reg.Base[r], s.off), nil
			}
		}
	}
	return nil, e.differ(engine.Facts{Event: engine.MemoryFreed, Sides: []engine.Side{{Rank: e.rank}, {Rank: r}}})
}

// openPlace says in the slot where this rank's buffers are, if they are in regions.
func (e *Engine) announceRegion(h *header, c *engine.Call, dst bool) bool {
	p := regionBuffer{src: e.regionAddrOf(c.Src), n: int64(c.Src.N), scale: e.factor(c)}
	if p.src.region == 0 {
		return false
	}
	if dst {
		if p.dst = e.regionAddrOf(c.Dst); p.dst.region == 0 {
			return false
		}
	}
	e.head.n = direct
	*(*regionBuffer)(h.dataAfterHeader(&e.head.sig)) = p
	return true
}

// allOpen waits for all ranks, and reports whether the buffers of all of them
// can be read in place; e.seen then says where they are.
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
