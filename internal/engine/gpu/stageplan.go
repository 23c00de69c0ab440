package gpu

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// How much goes through host memory at once. A slab is large enough that
// beginning it costs little, and small enough to stay in a cache; three slots
// are copied in, worked on and copied out at the same time.
const (
	slots     = 3
	slotBytes = 4 << 20
	leastLoad = 512 << 10 // an operation is not divided further than this
	steps     = 8         // into how many loads one is divided, if they are not too small or too large
	line      = 64
)

// A slab is a run of a call's elements that goes through a slot: of each of its
// shares, where the call has shares, or of the whole.
type slab struct {
	call  *engine.Call
	t     kernel.DType
	lo, n int // the elements of each share, as far as it has so many
	at    int // where in the slot it begins, in bytes
}

// A load is the slabs that go through a slot together.
type load []slab

// plan divides the operation's calls on the device into loads, the same way on
// every rank. Most is the number of elements of each call's largest share on any
// rank. A barrier in a stream's order is a slab without memory.
func (s *stage) plan(o *operation, most []int) {
	s.slabs, s.loads = s.slabs[:0], s.loads[:0]
	total := 0
	for i := range o.calls {
		if c := &o.calls[i]; c.OnDevice() {
			total += most[i] * width(c.Verb, s.size) * c.Sig().Type.Size()
		}
	}
	room := min(max(total/steps, leastLoad), s.slot)
	left, begin := room, 0
	flush := func() {
		if len(s.slabs) > begin {
			s.loads = append(s.loads, s.slabs[begin:len(s.slabs):len(s.slabs)])
			left, begin = room, len(s.slabs)
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
		t, wide := c.Sig().Type, width(c.Verb, s.size)
		per := most[i]
		if wide*per*t.Size() > room {
			per = max(room/wide/line*line, line) / t.Size()
		}
		for lo := 0; lo < most[i]; lo += per {
			n := min(per, most[i]-lo)
			need := (wide*n*t.Size() + line - 1) / line * line
			if need > left {
				flush()
			}
			s.slabs = append(s.slabs, slab{c, t, lo, n, room - left})
			left -= need
		}
	}
	flush()
}

// width is how many shares of a call lie in a slot at once.
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

// largest is the number of elements of a call's largest share, as far as this
// rank knows.
func largest(c *engine.Call, size int) int {
	if !c.Uneven {
		n := int(c.Sig().Count)
		if v := c.Verb.Info(); v.Source.Divided && v.Dest.Divided {
			n /= size
		}
		return n
	}
	most := 0
	c.Memories(func(m *engine.Mem) { most = max(most, m.N) })
	return most
}
