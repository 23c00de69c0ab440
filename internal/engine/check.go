package engine

import (
	"fmt"
	"math"

	"github.com/tutti-go/tutti/internal/kernel"
)

// Check checks this rank's arguments of a call before data moves. Its errors match
// ErrInvalid or ErrNoDevicePath.
func (c *Call) Check(rank, size int) error {
	if c.usual() {
		return nil
	}
	if c.Verb.Rooted() && (c.Root < 0 || c.Root >= size) {
		return invalid("root %d is not one of the %d ranks, which are numbered from 0 to %d", c.Root, size, size-1)
	}
	if err := c.checkRed(); err != nil {
		return err
	}
	if err := c.checkSides(rank, size); err != nil {
		return err
	}
	return c.checkOverlap(rank, size)
}

// usual is the shortest way through Check, for the most frequent call: a valid
// AllReduce in place in host memory. It bounds the number of elements, because
// their size in bytes may overflow.
func (c *Call) usual() bool {
	m := &c.Src
	return c.Verb == AllReduce && c.ReduceOp.Info().Elements == AllElements && c.Dst == *m &&
		m.Ptr != nil && uint(m.N-1) < 1<<30 && m.Device == 0 && m.Type.Valid()
}

// IsUsualMessage is the shortest way through Message.Check, for the most frequent arguments: valid
// host memory and a named rank.
func IsUsualMessage(peer, tag, size int, m *Mem) bool {
	return uint(peer) < uint(size) && tag >= 0 && m.Ptr != nil && uint(m.N-1) < 1<<30 && m.Device == 0 && m.Type.Valid()
}

// Check checks this rank's arguments of a message.
func (m *Message) Check(rank, size int) error {
	if (m.Peer < 0 || m.Peer >= size) && !(m.Peer == AnyRank && m.Flexible) {
		switch {
		case m.Peer == AnyRank && m.Send:
			return invalid("AnyRank is for Comm.Recv and RecvSlice; name the receiver")
		case m.Peer == AnyRank:
			return invalid("AnyRank is for Comm.Recv and RecvSlice, not for a Batch or SendRecv; name the sender")
		}
		return invalid("rank %d is not one of the %d ranks, which are numbered from 0 to %d", m.Peer, size, size-1)
	}
	if m.Tag < 0 {
		return invalid("tag %d is negative; tags are zero or higher", m.Tag)
	}
	mem := m.Mem
	if mem.Type == kernel.Value {
		mem.Type = kernel.Uint8
	}
	return mem.check("buffer")
}

// CheckApart checks that a message that is received and one that is sent at the
// same time use different memory.
func CheckApart(dst, src Mem) error {
	if dst.overlaps(src) {
		return invalid("the buffer to receive into overlaps the one that is sent; use two buffers")
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// maxBytes is the size, in bytes, of the largest address space of a processor.
const maxBytes = min(1<<57, math.MaxInt)

// addressable reports whether the elements fit into the address space. Their type
// must be valid.
func (m Mem) addressable() bool {
	return m.N <= maxBytes/m.Type.Size() && uintptr(m.Bytes()) <= math.MaxUint-uintptr(m.Ptr)
}

// check returns an error unless m is valid host memory. what names the memory in the error.
func (m Mem) check(what string) error {
	switch {
	case m.Device == NoSuchDevice:
		return invalid("the %s is in the memory of device %d; devices are numbered from 0 to %d", what, m.N, maxDevice)
	case m.Nothing():
		return invalid("the %s is missing (a zero Buffer)", what)
	case !m.Type.Valid():
		return invalid("the %s has the unknown element type %d", what, m.Type)
	case m.N == OutOfRange:
		return invalid("the %s was sliced out of range; the bounds of Slice and Parts must lie within the Buffer", what)
	case m.N == Freed:
		return invalid("the %s is memory of Alloc that Free has released; call Free after its last use", what)
	case m.N < 0:
		return invalid("the %s has %d elements", what, m.N)
	case !m.addressable():
		return invalid("the %s has %d elements of %s at address %#x: more than the address space holds", what, m.N, m.Type, uintptr(m.Ptr))
	case m.Device != 0:
		return fmt.Errorf("%w: the %s is in the memory of device %d, and this Comm was made without a device; "+
			"make it with Config.Device (gpu.Auto()), and with Config.HostStaging (TUTTI_HOST_STAGING=1) where there is no NCCL", ErrNoDevicePath, what, m.Device-1)
	case m.Ptr == nil && m.N > 0:
		return invalid("the %s has %d elements at address zero", what, m.N)
	}
	return nil
}

// checkRed checks the operator and whether it takes the type of the elements.
func (c *Call) checkRed() error {
	if !c.Verb.Reduces() {
		return nil
	}
	if !c.ReduceOp.Valid() {
		return invalid("the zero Op is no reduction; use Sum, Max or another operator")
	}
	if !c.Verb.Accepts(c.ReduceOp) {
		return invalid("%s in %s: the ranks combine different numbers of sources; use Sum and divide the result", c.ReduceOp, c.Verb)
	}
	switch t := c.whole().Type; {
	case !t.Valid() || c.ReduceOp.Takes(t):
		return nil
	case t.IsFloat():
		return invalid("%s of %s: it combines bits; use integer elements", c.ReduceOp, t)
	default:
		return invalid("%s of %s: the intermediate sum or product could overflow the type; use Sum, or floating-point elements", c.ReduceOp, t)
	}
}

// checkSides checks that this rank passes each side that it uses, that the types
// agree, and that the sizes fit each other.
func (c *Call) checkSides(rank, size int) error {
	v := c.Verb.Info()
	reads, writes := v.Source.Ranks.Has(rank, c.Root), v.Dest.Ranks.Has(rank, c.Root)
	switch {
	case v.InPlace:
		return c.Src.check("buffer")
	case !reads && !writes:
		return nil
	case !writes:
		return c.Src.check("source")
	case !reads:
		return c.Dst.check("destination")
	case v.Source.Divided && v.Dest.Divided && c.Uneven:
		return c.checkAllParts(size)
	case v.Source.Divided && v.Dest.Divided:
		return c.checkEqual(size)
	case v.Dest.Divided:
		return c.checkDivided(&c.Src, "source", &c.Dst, c.DstParts, "destination", size)
	case v.Source.Divided:
		return c.checkDivided(&c.Dst, "destination", &c.Src, c.SrcParts, "source", size)
	default:
		return c.checkEqual(1)
	}
}

// checkAllParts checks both sides of an uneven call that divides both.
func (c *Call) checkAllParts(size int) error {
	t := partsType(c.DstParts, c.SrcParts)
	if t == 0 {
		return invalid("every part is missing (zero Buffers)")
	}
	if err := checkParts(c.DstParts, "destination", t, size); err != nil {
		return err
	}
	return checkParts(c.SrcParts, "source", t, size)
}

// checkEqual checks that the source and the destination have one type and one
// size, and that parts divides the number of elements.
func (c *Call) checkEqual(parts int) error {
	if err := c.Src.check("source"); err != nil {
		return err
	}
	if c.Dst != c.Src {
		if err := c.Dst.check("destination"); err != nil {
			return err
		}
		if c.Src.Type != c.Dst.Type {
			return invalid("the source is %s, the destination %s", c.Src.Type, c.Dst.Type)
		}
		if c.Src.N != c.Dst.N {
			return invalid("the source has %d elements, the destination %d", c.Src.N, c.Dst.N)
		}
	}
	if parts > 1 && c.Src.N%parts != 0 {
		return invalid("%d elements cannot be divided among %d ranks; use AllToAllV for shares of different lengths", c.Src.N, parts)
	}
	return nil
}

// checkDivided checks one undivided side and one side with a share per rank.
func (c *Call) checkDivided(one *Mem, oneName string, all *Mem, parts []Mem, allName string, size int) error {
	if err := one.check(oneName); err != nil {
		return err
	}
	if c.Uneven {
		return checkParts(parts, allName, one.Type, size)
	}
	if err := all.check(allName); err != nil {
		return err
	}
	if one.Type != all.Type {
		return invalid("the %s is %s, the %s %s", oneName, one.Type, allName, all.Type)
	}
	if all.N/size != one.N || all.N%size != 0 { // size*one.N may overflow
		return invalid("the %s has %d elements; %d ranks with %d each need %d", allName, all.N, size, one.N, size*one.N)
	}
	return nil
}

// checkParts checks that there is one part per rank, each of type t or missing.
func checkParts(parts []Mem, name string, t kernel.DType, size int) error {
	if len(parts) != size {
		return invalid("the %s has %d parts; pass %d, one for each rank", name, len(parts), size)
	}
	for i, m := range parts {
		if m == (Mem{}) {
			continue
		}
		if err := m.check(name); err != nil {
			return fmt.Errorf("%w (part %d)", err, i)
		}
		if m.Type != t {
			return invalid("part %d of the %s is %s, not %s", i, name, m.Type, t)
		}
	}
	return nil
}

// checkOverlap checks that the destination and the source do not overlap, unless
// the operation is in place: then both are exactly the same memory.
func (c *Call) checkOverlap(rank, size int) error {
	v := c.Verb.Info()
	switch {
	case !v.Source.Ranks.Has(rank, c.Root) || !v.Dest.Ranks.Has(rank, c.Root):
		return nil
	case v.Source.Divided && v.Dest.Divided && c.Uneven:
		return c.checkPartsApart()
	case v.Source.Divided == v.Dest.Divided:
		if c.Dst != c.Src && !c.Dst.same(c.Src) && c.Dst.overlaps(c.Src) {
			return invalid("source and destination overlap without being the same; pass one buffer twice, or two that do not overlap")
		}
		return nil
	case v.Dest.Divided:
		return checkShare(c.Src, "source", &c.Dst, c.DstParts, c.Uneven, "destination", rank, size)
	default:
		return checkShare(c.Dst, "destination", &c.Src, c.SrcParts, c.Uneven, "source", rank, size)
	}
}

// checkPartsApart checks that no part of the destination overlaps another part
// of the call.
func (c *Call) checkPartsApart() error {
	if err := checkDisjoint(c.DstParts, "destination"); err != nil {
		return err
	}
	for i, d := range c.DstParts {
		for j, s := range c.SrcParts {
			if d.overlaps(s) {
				return invalid("part %d of the destination overlaps part %d of the source", i, j)
			}
		}
	}
	return nil
}

// checkShare checks that one does not overlap the divided side all. It may be
// exactly this rank's share of it.
func checkShare(one Mem, oneName string, all *Mem, parts []Mem, uneven bool, allName string, rank, size int) error {
	if !uneven {
		n := all.N / size
		if !one.same(all.Slice(rank*n, n)) && one.overlaps(*all) {
			return invalid("the %s overlaps the %s without being this rank's part of it", oneName, allName)
		}
		return nil
	}
	for i, p := range parts {
		if one.overlaps(p) && (i != rank || !one.same(p)) {
			return invalid("the %s overlaps part %d of the %s", oneName, i, allName)
		}
	}
	if allName == "destination" {
		return checkDisjoint(parts, allName)
	}
	return nil
}

// checkDisjoint checks that no two parts overlap. It needs one pass if the parts
// lie in the order of their addresses, which is the usual case.
func checkDisjoint(parts []Mem, name string) error {
	end := uintptr(0)
	for i, p := range parts {
		if p.Bytes() == 0 {
			continue
		}
		if uintptr(p.Ptr) < end {
			for j, q := range parts[:i] {
				if p.overlaps(q) {
					return invalid("parts %d and %d of the %s overlap", j, i, name)
				}
			}
		}
		end = max(end, uintptr(p.Ptr)+uintptr(p.Bytes()))
	}
	return nil
}
