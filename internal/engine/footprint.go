package engine

import (
	"cmp"
	"fmt"
	"slices"
)

// An extent is memory that an operation of a Batch reads or writes. It is kept
// small because extents are sorted.
type extent struct {
	low, high uintptr // high is the address behind the last byte
	number    int32   // index of the operation among the collectives or the messages
	part      int32   // index in an uneven side; -1: the side is one buffer
	root      int32
	verb      Verb // zero: a message
	party     Party
	write     bool
	uneven    bool
}

func (x *extent) String() string {
	kind, part := "collective", ""
	if x.verb == 0 {
		kind = "message"
	}
	if x.part >= 0 {
		part = fmt.Sprintf("part %d of ", x.part)
	}
	return fmt.Sprintf("%sthe %s of %s (%s %d)", part, x.side(), x.op(), kind, x.number+1)
}

// usedBy reports whether rank uses the extent, as rank me sees it.
func (x *extent) usedBy(rank, me int) bool {
	if x.party == thisRank {
		return rank == me
	}
	return x.party.Has(rank, int(x.root))
}

func (x *extent) op() string {
	if x.verb == 0 {
		return (&Message{Send: !x.write}).Op()
	}
	return x.verb.FormName(x.uneven)
}

func (x *extent) side() string {
	switch {
	case x.verb == 0, x.verb.Info().InPlace:
		return "buffer"
	case x.write:
		return "destination"
	}
	return "source"
}

// A Footprint records the memory that the operations of a Batch use on one rank.
// The operations run in any order and at the same time, so that none may write
// memory that another one uses. The zero Footprint is empty. It reuses its lists
// and keeps no reference to the memory of the operations.
type Footprint struct {
	reads, writes extents
}

// Reset empties the Footprint.
func (f *Footprint) Reset() { f.reads.list, f.writes.list = f.reads.list[:0], f.writes.list[:0] }

// extents is a list that is read in the order of the lowest addresses.
type extents struct {
	list []extent
	next int     // index of the next extent to read
	open []int32 // indexes of extents read before, which may reach beyond its lowest address
}

// begin sorts the list, unless operations were added in the order of their
// addresses, which is frequent.
func (l *extents) begin() {
	for i := 1; i < len(l.list); i++ {
		if l.list[i].low < l.list[i-1].low {
			slices.SortFunc(l.list, func(a, b extent) int { return cmp.Compare(a.low, b.low) })
			break
		}
	}
	l.next, l.open = 0, l.open[:0]
}

// before reports whether the next extent of l begins no later than the next one of
// o.
func (l *extents) before(o *extents) bool {
	return l.next < len(l.list) && (o.next == len(o.list) || l.list[l.next].low <= o.list[o.next].low)
}

// take returns the next extent.
func (l *extents) take() *extent {
	x := &l.list[l.next]
	l.open = append(l.open, int32(l.next))
	l.next++
	return x
}

// overlapping returns an extent of l that was read before and clashes with x, or nil. No
// extent that was read before begins behind x. It drops extents that end before x.
func (l *extents) overlapping(x *extent, rank, size int) *extent {
	open := l.open
	l.open = open[:0]
	for _, i := range open {
		y := &l.list[i]
		if y.high <= x.low {
			continue
		}
		l.open = append(l.open, i)
		if overlapping(x, y, rank, size) {
			return y
		}
	}
	return nil
}

// AddCall adds the memory of a call that has passed Check. Number is its index
// among the collectives of the Batch.
func (f *Footprint) AddCall(number int, c *Call) {
	v := c.Verb.Info()
	x := extent{number: int32(number), root: int32(c.Root), verb: c.Verb, uneven: c.Uneven}
	// In place, the extent that is written covers the one that is read.
	if c.Uneven || c.Dst != c.Src || v.Source.Ranks != v.Dest.Ranks {
		x.party = v.Source.Ranks
		f.add(x, c.Src, c.SrcParts)
	}
	x.party, x.write = v.Dest.Ranks, true
	f.add(x, c.Dst, c.DstParts)
}

// AddMessage adds the memory of a message that has passed Check. Number is its index
// among the messages of the Batch.
func (f *Footprint) AddMessage(number int, send bool, m Mem) {
	f.add(extent{number: int32(number), party: thisRank, write: !send}, m, nil)
}

func (f *Footprint) add(x extent, whole Mem, parts []Mem) {
	x.part = -1
	f.addMem(x, whole)
	for i, m := range parts {
		x.part = int32(i)
		f.addMem(x, m)
	}
}

// addMem adds one buffer. It ignores buffers that are empty or invalid: a rank may
// pass any value for a side that it does not use.
func (f *Footprint) addMem(x extent, m Mem) {
	if m.N <= 0 || m.Device == NoSuchDevice || !m.Type.Valid() || !m.addressable() {
		return
	}
	x.low = uintptr(m.Ptr)
	x.high = x.low + uintptr(m.Bytes())
	l := &f.reads
	if x.write {
		l = &f.writes
	}
	l.list = append(l.list, x)
}

// Check returns an error that matches ErrInvalid if one operation writes memory
// that another one reads or writes. It takes the buffers that rank, one of size
// ranks, has passed, and counts a buffer as written if any rank writes it. So all
// ranks come to the same result if they pass the same buffers. It compares
// addresses alone, because the host and all devices share one address space. A
// Footprint belongs to one goroutine.
func (f *Footprint) Check(rank, size int) error {
	f.reads.begin()
	f.writes.begin()
	for {
		var x, y *extent // x is written
		switch {
		case f.writes.before(&f.reads):
			at := &f.writes.list[f.writes.next]
			if y = f.writes.overlapping(at, rank, size); y == nil {
				y = f.reads.overlapping(at, rank, size)
			}
			x = f.writes.take()
		case f.reads.before(&f.writes):
			y = f.reads.take()
			x = f.writes.overlapping(y, rank, size)
		default:
			return nil
		}
		if x != nil && y != nil {
			return invalid("%v is written and overlaps %v; operations of a Batch run in any order and at the same time: put them into two Batches", x, y)
		}
	}
}

// overlapping reports whether some rank uses both extents, in two operations. The caller
// passes at least one extent that is written. It looks at this rank, at both roots,
// and at one other rank: ranks that are not a root use the same sides. A call without a
// root has root 0, so it also looks at rank 0, which may use fewer sides (AllButFirst).
func overlapping(x, y *extent, me, size int) bool {
	if x.number == y.number && (x.verb == 0) == (y.verb == 0) {
		return false
	}
	a, b := int(x.root), int(y.root)
	both := func(rank int) bool { return x.usedBy(rank, me) && y.usedBy(rank, me) }
	if both(me) || both(a) || both(b) {
		return true
	}
	for rank := range min(size, 3) {
		if rank != a && rank != b {
			return both(rank)
		}
	}
	return false
}
