package shm

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// runPull runs one call in which each rank copies or combines what it needs from the
// other ranks' slots or buffers. When it returns, other ranks may still read this
// rank's buffers, except for the root of a Reduce or Gather; awaitReaders waits for
// them at the end of Run.
func (e *Engine) runPull(c *engine.Call) error {
	h, err := e.beginCall(c)
	if err != nil {
		return err
	}
	readers := e.readers(c)
	if readers == readByNone || c.SrcParts == nil && c.Src.Bytes() <= e.g.opt.Small {
		e.fillSlot(h, c)
	} else {
		src, err := e.stableSource(c)
		if err != nil {
			return err
		}
		e.expose(c, src)
		e.head.n = direct
	}
	e.publishDeferred(h)
	if readers != readByNone {
		e.prefetchNextSlots(c.Src.Bytes())
	}
	if e.mustCompare(c) {
		if err := e.compareArrived(); err != nil {
			return err
		}
	}
	if err := e.takeResults(c); err != nil {
		return err
	}
	if err := e.finishCall(c); err != nil {
		return err
	}
	if e.head.n != direct {
		return nil
	}
	if readers == readByRoot {
		return e.awaitReader(c.Root)
	}
	e.exposedStep = e.step
	return nil
}

// Which ranks read a rank's source.
const (
	readByNone = iota
	readByRoot
	readByAll
)

// readers returns which ranks read this rank's source.
func (e *Engine) readers(c *engine.Call) int {
	v := c.Verb.Info()
	switch {
	case len(e.g.boards) == 1, c.Src.Nothing() && c.SrcParts == nil, !v.Source.Ranks.Has(e.rank, c.Root):
		return readByNone
	case v.Dest.Ranks != engine.RootOnly:
		return readByAll
	case e.rank == c.Root:
		return readByNone
	}
	return readByRoot
}

// stableSource returns a source that stays unchanged until the other ranks have
// read it. An AllToAll or ExScan in place overwrites its source before that, so the source is
// copied to e.inPlaceCopy. The previous content of e.inPlaceCopy must have been read first.
func (e *Engine) stableSource(c *engine.Call) (engine.Mem, error) {
	src := c.Src
	if c.Uneven || c.Src.Ptr != c.Dst.Ptr || !e.overwritesSource(c) {
		return src, nil
	}
	if err := e.awaitReaders(); err != nil {
		return src, err
	}
	if cap(e.inPlaceCopy) < src.Bytes() {
		e.inPlaceCopy = make([]byte, src.Bytes())
	}
	src.Ptr = unsafe.Pointer(unsafe.SliceData(e.inPlaceCopy))
	kernel.Copy(src.Ptr, c.Src.Ptr, src.Bytes())
	return src, nil
}

// overwritesSource reports whether a call in place overwrites a source that other ranks may still
// read. In an ExScan neither rank 0, which has no destination, nor the last rank, whose source no
// rank reads, does.
func (e *Engine) overwritesSource(c *engine.Call) bool {
	return c.Verb == engine.AllToAll || c.Verb == engine.ExScan && e.rank > 0 && e.rank < len(e.g.boards)-1
}

// awaitReader waits until rank r, the only reader of this rank's buffer, has read it, and ends the
// exposure.
func (e *Engine) awaitReader(r int) error {
	b := e.g.boards[r]
	ok, err := e.w.AtLeast(b.done(), e.step, b.left())
	if err != nil {
		return err
	}
	if !ok {
		return e.rankLeft([]int{r}, e.op, e.seq)
	}
	e.exposures[e.step%slotsPerBoard] = exposure{}
	e.vmreadExposed = e.vmreadExposed && e.exposedStep != 0
	return nil
}

// takeResults copies or combines this rank's results out of the other ranks' slots
// and buffers. It waits for each rank whose data it needs. The wait returns an
// error if that rank leaves or runs another call, if the group fails, or if the
// context ends.
func (e *Engine) takeResults(c *engine.Call) error {
	v := c.Verb.Info()
	share := v.Source.Divided
	switch {
	case !v.Dest.Ranks.Has(e.rank, c.Root):
		return nil
	case v.Prefix != engine.NoPrefix:
		return e.takePrefix(c)
	case v.Reduces:
		return e.reduceFromAll(c, c.Dst, share)
	case v.Source.Ranks == engine.RootOnly:
		return e.takeFrom(c, c.Root, c.Dst, share)
	default:
		return e.takeFromAll(c, share)
	}
}

// source returns the elements that this rank takes of rank r's source (all of them,
// or this rank's share), and their factor. It checks that there are n.
func (e *Engine) source(c *engine.Call, r, n int, share bool) (engine.Mem, float64, error) {
	v, err := e.sourceOf(c, r)
	if err != nil {
		return engine.Mem{}, 0, err
	}
	src := v.src
	if share {
		src = v.part(e.rank, len(e.g.boards))
	}
	if src.N != n {
		return engine.Mem{}, 0, e.countMismatch(r, n, src.N)
	}
	return src, v.scale, nil
}

// countMismatch is the error for a rank r that has another number of elements for
// this rank than this rank expects.
func (e *Engine) countMismatch(r, want, has int) error {
	return e.differ(engine.Facts{
		Event: engine.CountsDiffer, Sides: []engine.Side{{Rank: e.rank, N: int64(want)}, {Rank: r, N: int64(has)}},
	})
}

// takeFrom copies rank r's elements for this rank to dst.
func (e *Engine) takeFrom(c *engine.Call, r int, dst engine.Mem, share bool) error {
	src, _, err := e.source(c, r, dst.N, share)
	if err != nil {
		return err
	}
	engine.Copy(dst, src)
	return nil
}

// takeFromAll copies from all ranks. It begins with this rank, so that not all
// ranks read the same source at once.
func (e *Engine) takeFromAll(c *engine.Call, share bool) error {
	n := len(e.g.boards)
	for i := range n {
		r := (e.rank + i) % n
		if err := e.takeFrom(c, r, c.DstPart(r, n), share); err != nil {
			return err
		}
	}
	return nil
}

// reduceFromAll combines all ranks' elements for this rank into dst.
func (e *Engine) reduceFromAll(c *engine.Call, dst engine.Mem, share bool) error {
	for r := range e.g.boards {
		src, scale, err := e.source(c, r, dst.N, share)
		if err != nil {
			return err
		}
		e.from[r], e.scale[r] = src.Ptr, scale
	}
	e.combine(c, dst.Ptr, dst.N, dst.Type)
	clear(e.from)
	return nil
}
