package shm

import (
	"errors"
	"math"
	"syscall"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// Large data that is only copied, and by all ranks at once, goes from one
// process's buffer to another's by the system, in one copy: through windows it
// would be two. Where ranks reduce what comes, or wait for a root, windows are
// faster for much data: then the two copies go on at once.

// afar in place of the number of elements says that the data is to be read from
// the rank's process; the tail says where it is.
const remote = math.MinInt64

// A far is that place. It comes with the head's cache line.
type remoteBuffer struct {
	addr  uint64
	n     int64 // elements
	scale float64
}

// far is where the data is, if it is afar.
func (h *header) remoteBuffer() *remoteBuffer { return (*remoteBuffer)(unsafe.Pointer(&h.tail)) }

// peekRoot is the most that is taken of a root in this way.
const vmreadRootMax = 256 << 10

// peekReduce is the most that the root of a Reduce takes of all others together.
const vmreadReduceMax = 64 << 10

// peekMost bounds one call of the system, in which nothing else is looked at.
const vmreadCallMax = 256 << 10

// swaps reports whether a call that would fit into slots is better copied by the
// system: between two processes that have a core each, it is copied once, and not
// by the one who waits for nothing. Where both copy, or one of them combines as
// well, that pays a little later.
func (e *Engine) prefersVMRead(c *engine.Call) bool {
	if !e.g.vmreadPair {
		return false
	}
	switch c.Verb {
	case engine.Broadcast:
		return c.Src.Bytes() >= e.g.opt.VMReadMin
	case engine.AllGather, engine.Reduce:
		return c.Src.Bytes() >= e.g.opt.VMReadMin*3/2
	}
	return false
}

// openBuffer says in the head where this rank's source is in its own process.
func (e *Engine) announceRemote(c *engine.Call) bool {
	if e.g.shared.ReadProcess == nil || c.Uneven {
		return false
	}
	minBytes := e.g.opt.VMReadMin
	switch c.Verb {
	case engine.AllGather:
	case engine.Broadcast:
		if c.Src.Bytes() > vmreadRootMax {
			return false
		}
	case engine.Reduce:
		if (len(e.g.boards)-1)*c.Src.Bytes() > vmreadReduceMax {
			return false
		}
	case engine.AllToAll:
		minBytes *= len(e.g.boards)
	default:
		return false
	}
	if c.Src.Bytes() < minBytes || !e.readable() {
		return false
	}
	e.exposures[e.step%slotsPerBoard].src = c.Src // for serve
	e.vmreadExposed = true
	e.head.n = remote
	*e.head.remoteBuffer() = remoteBuffer{uint64(uintptr(c.Src.Ptr)), int64(c.Src.N), e.factor(c)}
	return true
}

// peek copies what lies at an address of rank r's process, in the buffer that r has
// announced in the present step. Only ESRCH says that the process has ended; for
// every other reason r is asked to help.
func (e *Engine) vmread(r int, dst engine.Mem, addr uint64) error {
	for off, bytes := 0, dst.Bytes(); off < bytes; off += vmreadCallMax {
		if e.g.lot.Stopped() {
			return wait.ErrStopped
		}
		n := min(vmreadCallMax, bytes-off)
		err := e.g.shared.ReadProcess(r, unsafe.Add(dst.Ptr, off), addr+uint64(off), n)
		switch {
		case err == nil:
		case errors.Is(err, syscall.ESRCH):
			return e.lost(r, engine.Exited, err)
		default:
			begin := e.g.boards[r].slot(e.step).remoteBuffer().addr
			return e.requestFrom(r, unsafe.Add(dst.Ptr, off), int(addr-begin)+off, bytes-off, err)
		}
	}
	return nil
}

// fetch is peek into memory of the root's own, from where it is reduced while it
// is in a cache.
func (e *Engine) vmreadToScratch(r int, like engine.Mem, addr uint64) (unsafe.Pointer, error) {
	bytes := like.Bytes()
	if len(e.gathered) < len(e.g.boards)*bytes {
		e.gathered = make([]byte, len(e.g.boards)*bytes)
	}
	like.Ptr = unsafe.Pointer(&e.gathered[r*bytes])
	return like.Ptr, e.vmread(r, like, addr)
}
