package gpu

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
)

// A move is a copy between a slot and device memory.
type move struct {
	host   unsafe.Pointer
	device engine.Mem
}

// A stager lays out a slab in a slot: the copies into it, the call of the CPU engine, and the
// copies out of it. The shares of a slab are contiguous. A result replaces its source wherever the
// CPU engine allows that.
type stager struct {
	slab
	base       unsafe.Pointer
	rank, size int
}

// area returns share k of the slot, with the length of m's part in the slab.
func (p *stager) area(k int, m engine.Mem) engine.Mem {
	return engine.Mem{
		Ptr: unsafe.Add(p.base, p.at+k*p.n*p.t.Size()),
		N:   min(max(m.N-p.lo, 0), p.n), Type: p.t,
	}
}

// run returns the shares of all ranks in the slot, starting with share k, as one buffer.
func (p *stager) run(k int) engine.Mem {
	m := p.area(k, engine.Mem{})
	m.N = p.size * p.n
	return m
}

// cut returns m's part in the slab.
func (p *stager) cut(m engine.Mem) engine.Mem {
	lo := min(p.lo, m.N)
	return m.Slice(lo, min(p.n, m.N-lo))
}

// pair returns the move between m's part in the slab and share k.
func (p *stager) pair(k int, m engine.Mem) move { return move{p.area(k, m).Ptr, p.cut(m)} }

// in appends the copies that fill the slot.
func (p *stager) in(list []move) []move {
	c := p.call
	switch c.Verb {
	case engine.AllReduce, engine.Reduce:
		return append(list, p.pair(0, c.Src))
	case engine.Broadcast:
		if p.rank == c.Root {
			return append(list, p.pair(0, c.Src))
		}
		return list
	case engine.AllGather, engine.Gather:
		return append(list, p.pair(p.rank, c.Src))
	case engine.Barrier:
		return list
	}
	if c.Verb == engine.Scatter && p.rank != c.Root {
		return list
	}
	for r := range p.size {
		list = append(list, p.pair(r, c.SrcPart(r, p.size)))
	}
	return list
}

// host returns the call of the CPU engine for the slot. The lists of parts of the call are appended
// to parts.
func (p *stager) host(name string, parts *[]engine.Mem) engine.Call {
	c := p.call
	h := engine.Call{Verb: c.Verb, Red: c.Red, Uneven: c.Uneven, Root: c.Root, Scale: c.Scale, Method: name}
	root := p.rank == c.Root
	list := func(k int, of []engine.Mem) []engine.Mem {
		begin := len(*parts)
		for r, m := range of {
			*parts = append(*parts, p.area(k+r, m))
		}
		return (*parts)[begin:len(*parts):len(*parts)]
	}
	switch c.Verb {
	case engine.AllReduce, engine.Broadcast:
		h.Src = p.area(0, c.Src)
		h.Dst = h.Src
	case engine.Reduce:
		h.Src = p.area(0, c.Src)
		if root {
			h.Dst = h.Src
		}
	case engine.AllGather, engine.Gather:
		h.Src = p.area(p.rank, c.Src)
		switch {
		case c.Verb == engine.Gather && !root:
		case c.Uneven:
			h.DstParts = list(0, c.DstParts)
		default:
			h.Dst = p.run(0)
		}
	case engine.ReduceScatter, engine.Scatter:
		h.Dst = p.area(p.rank, c.Dst)
		switch {
		case c.Verb == engine.Scatter && !root:
		case c.Uneven:
			h.SrcParts = list(0, c.SrcParts)
		default:
			h.Src = p.run(0)
		}
	case engine.AllToAll:
		if c.Uneven {
			h.SrcParts, h.DstParts = list(0, c.SrcParts), list(p.size, c.DstParts)
		} else {
			h.Src, h.Dst = p.run(0), p.run(p.size)
		}
	}
	return h
}

// out appends the copies that deliver the results.
func (p *stager) out(list []move) []move {
	c := p.call
	root := p.rank == c.Root
	switch {
	case c.Verb == engine.Barrier, c.Verb == engine.Broadcast && root,
		(c.Verb == engine.Reduce || c.Verb == engine.Gather) && !root:
		return list
	case c.Verb == engine.AllReduce, c.Verb == engine.Reduce, c.Verb == engine.Broadcast:
		return append(list, p.pair(0, c.Dst))
	case c.Verb == engine.ReduceScatter, c.Verb == engine.Scatter:
		return append(list, p.pair(p.rank, c.Dst))
	}
	first := 0
	if c.Verb == engine.AllToAll {
		first = p.size
	}
	for r := range p.size {
		list = append(list, p.pair(first+r, c.DstPart(r, p.size)))
	}
	return list
}
