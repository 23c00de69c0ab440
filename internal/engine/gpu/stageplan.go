package gpu

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// Sizes of pieces. A piece is large enough that its fixed cost does not matter, and small enough to
// stay in a cache. With three slots, one can be copied in while the ranks exchange the second and the
// third is copied out.
const (
	slots     = 3
	slotBytes = 4 << 20   // default of DeviceOptions.Slot; bench/gputest has a copy, stagedPiece
	leastLoad = 512 << 10 // bytes; the smallest load of a larger operation
	steps     = 8         // number of loads of an operation, unless they become too small or too large
	line      = 64        // bytes of a cache line; slabs are aligned to it
)

// A slab is a range of a call's elements that goes through a slot: the same range of each share if
// the call has shares, or a range of the whole buffer.
type slab struct {
	call  *engine.Call
	t     kernel.DType
	lo, n int // first element and number of elements; a shorter share has fewer
	at    int // offset in the slot, in bytes
}

// A load is a list of slabs that go through a slot together.
type load []slab

// plan divides the operation's calls on device memory into loads. All ranks come to the same loads,
// because plan uses only what all ranks have in common: the calls' fingerprints, and most, which has
// for each call the number of elements of the largest share on any rank. A share is what one rank
// contributes or receives. A barrier that is ordered with a stream becomes a slab without memory. A
// stage belongs to the goroutine in Run.
func (s *stage) plan(o *operation, most []int) {
	s.slabs, s.loads = s.slabs[:0], s.loads[:0]
	total := 0
	for i := range o.calls {
		if c := &o.calls[i]; c.OnDevice() {
			total += most[i] * width(c.Verb, s.size) * c.Fingerprint().Type.Size()
		}
	}
	loadBytes := min(max(total/steps, leastLoad), s.slot)
	left, begin := loadBytes, 0
	flush := func() {
		if len(s.slabs) > begin {
			s.loads = append(s.loads, s.slabs[begin:len(s.slabs):len(s.slabs)])
			left, begin = loadBytes, len(s.slabs)
		}
	}
	for i := range o.calls {
		c := &o.calls[i]
		if c.Verb == engine.Barrier && o.stream != nil {
			s.slabs = append(s.slabs, slab{call: c})
			continue
		}
		if !c.OnDevice() || most[i] == 0 {
			continue
		}
		t, shares := c.Fingerprint().Type, width(c.Verb, s.size)
		slabElems := most[i]
		if shares*slabElems*t.Size() > loadBytes {
			slabElems = max(loadBytes/shares/line*line, line) / t.Size()
		}
		for lo := 0; lo < most[i]; lo += slabElems {
			n := min(slabElems, most[i]-lo)
			need := (shares*n*t.Size() + line - 1) / line * line
			if need > left {
				flush()
			}
			s.slabs = append(s.slabs, slab{c, t, lo, n, loadBytes - left})
			left -= need
		}
	}
	flush()
}

// width returns how many shares of a call a slot holds.
func width(v engine.Verb, size int) int {
	i := v.Info()
	switch {
	case i.Source.Divided && i.Dest.Divided:
		return 2 * size
	case i.Source.Divided || i.Dest.Divided:
		return size
	}
	return 1
}

// largest returns the number of elements of a call's largest share that this rank knows of.
func largest(c *engine.Call, size int) int {
	if !c.Uneven {
		n := int(c.Fingerprint().Count)
		if v := c.Verb.Info(); v.Source.Divided && v.Dest.Divided {
			n /= size
		}
		return n
	}
	most := 0
	c.Memories(func(m *engine.Mem) { most = max(most, m.N) })
	return most
}
