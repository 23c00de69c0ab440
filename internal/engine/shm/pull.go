package shm

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// pull carries out one call in which each rank takes what it needs from the
// others' slots or buffers.
func (e *Engine) pull(c *engine.Call) error {
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
		return e.awaitRoot(c.Root)
	}
	e.exposedStep = e.step
	return nil
}

// Who reads a rank's source.
const (
	readByNone = iota
	readByRoot
	readByAll
)

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

// preserve returns a source that stays as it is until the others have read it.
// An AllToAll in place writes its results before that, so its source is copied,
// once the others have done with the copy that was there before.
func (e *Engine) stableSource(c *engine.Call) (engine.Mem, error) {
	src := c.Src
	if c.Verb != engine.AllToAll || c.Uneven || c.Src.Ptr != c.Dst.Ptr {
		return src, nil
	}
	if err := e.awaitReaders(); err != nil {
		return src, err
	}
	if cap(e.spare) < src.Bytes() {
		e.spare = make([]byte, src.Bytes())
	}
	src.Ptr = unsafe.Pointer(unsafe.SliceData(e.spare))
	kernel.Copy(src.Ptr, c.Src.Ptr, src.Bytes())
	return src, nil
}

// awaitRoot waits until the root has read this rank's buffer.
func (e *Engine) awaitRoot(root int) error {
	b := e.g.boards[root]
	ok, err := e.w.AtLeast(b.done(), e.step, b.left())
	if err != nil {
		return err
	}
	if !ok {
		return e.rankLeft(root, e.op, e.seq)
	}
	e.exposures[e.step%slotsPerBoard] = exposure{}
	e.vmreadExposed = e.vmreadExposed && e.exposedStep != 0
	return nil
}

// consume takes this rank's results of a call out of the others' slots and
// buffers.
func (e *Engine) takeResults(c *engine.Call) error {
	v := c.Verb.Info()
	share := v.Source.Divided
	switch {
	case !v.Dest.Ranks.Has(e.rank, c.Root):
		return nil
	case v.Reduces:
		return e.reduceFromAll(c, c.Dst, share)
	case v.Source.Ranks == engine.RootOnly:
		return e.takeFrom(c, c.Root, c.Dst, share)
	default:
		return e.takeFromAll(c, share)
	}
}

// source returns what this rank takes of rank r's source: this rank's share, or
// all of it. It checks that there are n elements.
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

// countMismatch says that rank r has another number of elements for this rank
// than this rank expects.
func (e *Engine) countMismatch(r, want, has int) error {
	return e.differ(engine.Facts{
		Event: engine.CountsDiffer, Sides: []engine.Side{{Rank: e.rank, N: int64(want)}, {Rank: r, N: int64(has)}},
	})
}

func (e *Engine) takeFrom(c *engine.Call, r int, dst engine.Mem, share bool) error {
	src, _, err := e.source(c, r, dst.N, share)
	if err != nil {
		return err
	}
	engine.Copy(dst, src)
	return nil
}

// takeFromAll begins with the next rank, so that not all ranks read the same
// one at once.
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
