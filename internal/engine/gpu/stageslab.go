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

// in appends the copies that fill the slot: the parts of this rank's source, if the rank has one.
func (p *stager) in(list []move) []move {
	c := p.call
	v := c.Verb.Info()
	switch {
	case !v.Source.Ranks.Has(p.rank, c.Root):
		return list
	case v.Source.Divided:
		for r := range p.size {
			list = append(list, p.pair(r, c.SrcPart(r, p.size)))
		}
		return list
	case v.Dest.Divided:
		return append(list, p.pair(p.rank, c.Src))
	}
	return append(list, p.pair(0, c.Src))
}

// host returns the call of the CPU engine for the slot. The lists of parts of the call are appended
// to parts.
func (p *stager) host(name string, parts *[]engine.Mem) engine.Call {
	c := p.call
	h := engine.Call{Verb: c.Verb, ReduceOp: c.ReduceOp, Uneven: c.Uneven, Root: c.Root, Scale: c.Scale, Method: name}
	v := c.Verb.Info()
	// side lays out one side of the call. Its shares begin with share first, and
	// within lists the parts that it is divided into. The other side holds all
	// shares if it is divided: then an undivided side lies in this rank's share.
	side := func(whole engine.Mem, within []engine.Mem, divided, other bool, first int) (engine.Mem, []engine.Mem) {
		switch {
		case divided && c.Uneven:
			begin := len(*parts)
			for r, m := range within {
				*parts = append(*parts, p.area(first+r, m))
			}
			return engine.Mem{}, (*parts)[begin:len(*parts):len(*parts)]
		case divided:
			return p.run(first), nil
		case other:
			return p.area(p.rank, whole), nil
		}
		return p.area(0, whole), nil
	}
	first := 0
	if v.Source.Divided {
		first = p.size
	}
	if v.InPlace || v.Source.Ranks.Has(p.rank, c.Root) {
		h.Src, h.SrcParts = side(c.Src, c.SrcParts, v.Source.Divided, v.Dest.Divided, 0)
	}
	if v.InPlace || v.Dest.Ranks.Has(p.rank, c.Root) {
		h.Dst, h.DstParts = side(c.Dst, c.DstParts, v.Dest.Divided, v.Source.Divided, first)
	}
	return h
}

// out appends the copies that deliver the results to this rank's destination, if the rank has one.
func (p *stager) out(list []move) []move {
	c := p.call
	v := c.Verb.Info()
	switch {
	case !v.Dest.Ranks.Has(p.rank, c.Root):
		return list
	case v.Dest.Divided:
		first := 0
		if v.Source.Divided {
			first = p.size
		}
		for r := range p.size {
			list = append(list, p.pair(first+r, c.DstPart(r, p.size)))
		}
		return list
	case v.Source.Divided:
		return append(list, p.pair(p.rank, c.Dst))
	}
	return append(list, p.pair(0, c.Dst))
}
