package shm

import (
	"errors"
	"math"
	"syscall"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// ReadProcess (process_vm_readv) copies data from one process's buffer to another's
// in one copy; through windows it takes two. It is used where all ranks copy at the
// same time. Where ranks reduce the data, or wait for a root, windows are faster
// for large data, because both copies run at the same time.

// remote, as header.n, says that the data is to be read from the rank's process.
// The header's tail holds a remoteBuffer.
const remote = math.MinInt64

// A remoteBuffer is the location of a rank's source in its own process. It is in
// the header's cache line.
type remoteBuffer struct {
	addr  uint64  // virtual address in the owner's process
	n     int64   // number of elements
	scale float64 // factor by which a reader multiplies the elements
}

// remoteBuffer returns the location of the data; valid if h.n is remote.
func (h *header) remoteBuffer() *remoteBuffer { return (*remoteBuffer)(unsafe.Pointer(&h.tail)) }

// vmreadRootMax is the largest Broadcast, in bytes, that is read from the root's
// process.
const vmreadRootMax = 256 << 10

// vmreadReduceMax is the most data, in bytes, that the root of a Reduce reads from
// all other processes together.
const vmreadReduceMax = 64 << 10

// vmreadCallMax bounds one system call, in bytes. During the call the rank checks
// neither the context nor the group.
const vmreadCallMax = 256 << 10

// prefersVMRead reports whether a call that would fit into slots is copied with
// ReadProcess. That applies to two processes with a core each: the data is copied
// once, by the rank that waits. Where both ranks copy, or one also combines, it
// pays from a larger size on.
func (e *Engine) prefersVMRead(c *engine.Call) bool {
	if !e.g.vmreadPair {
		return false
	}
	switch c.Verb {
	case engine.Broadcast, engine.ExScan:
		return c.Src.Bytes() >= e.g.opt.VMReadMin
	case engine.AllGather, engine.Reduce:
		return c.Src.Bytes() >= e.g.opt.VMReadMin*3/2
	}
	return false
}

// announceRemote writes the location of this rank's source to e.head, if the other
// ranks are to read it with ReadProcess. It reports whether they are.
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
	case engine.ExScan:
		if e.rank != 0 || len(e.g.boards) != 2 {
			return false
		}
	default:
		return false
	}
	if c.Src.Bytes() < minBytes || !e.readable() {
		return false
	}
	e.exposures[e.step%slotsPerBoard].src = c.Src // serve reads it
	e.vmreadExposed = true
	e.head.n = remote
	*e.head.remoteBuffer() = remoteBuffer{uint64(uintptr(c.Src.Ptr)), int64(c.Src.N), e.factor(c)}
	return true
}

// vmread copies from an address in rank r's process, in the buffer that r has
// announced in the current step. The error ESRCH says that the process has ended.
// On every other error rank r is asked to copy the rest.
func (e *Engine) vmread(r int, dst engine.Mem, addr uint64) error {
	for off, bytes := 0, dst.Bytes(); off < bytes; off += vmreadCallMax {
		if e.g.parking.Stopped() {
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

// vmreadToScratch is vmread into this rank's scratch memory, where the data is
// combined while it is in a cache.
func (e *Engine) vmreadToScratch(r int, like engine.Mem, addr uint64) (unsafe.Pointer, error) {
	bytes := like.Bytes()
	if len(e.vmreadScratch) < len(e.g.boards)*bytes {
		e.vmreadScratch = make([]byte, len(e.g.boards)*bytes)
	}
	like.Ptr = unsafe.Pointer(&e.vmreadScratch[r*bytes])
	return like.Ptr, e.vmread(r, like, addr)
}
