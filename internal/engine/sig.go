package engine

import (
	"fmt"
	"strings"

	"github.com/tutti-go/tutti/internal/kernel"
)

// A Sig is an operation's fingerprint: all that must be equal on every rank.
// It has a fixed size and no pointers, so that it can be written into memory
// that other processes map, or into a frame.
type Sig struct {
	Verb   Verb
	Type   kernel.DType
	Red    Red
	Uneven bool
	Root   int32
	// Count is the number of elements of the side that the verb does not
	// divide, or of the whole where it divides both. It is zero for the uneven
	// forms, whose counts are compared where data meets.
	Count int64
	// Name is a hash of the operation's name, or, with stepBit, of the fingerprint of the call that
	// it is a step of; zero for none.
	Name uint64
}

// Sig returns the call's fingerprint.
func (c *Call) Sig() Sig {
	var s Sig
	c.PutSig(&s)
	return s
}

// PutSig writes the call's fingerprint, field by field: a copy of one that was
// just written would have to wait for the processor's stores.
func (c *Call) PutSig(s *Sig) {
	m := c.whole()
	s.Verb, s.Uneven, s.Type = c.Verb, c.Uneven, m.Type
	s.Red, s.Root, s.Count, s.Name = 0, 0, 0, 0
	if c.Verb.Reduces() {
		s.Red = c.Red
	}
	if c.Verb.Rooted() {
		s.Root = int32(c.Root)
	}
	switch {
	case c.Of != nil:
		s.Name = stepName(c.Of.Sig())
	case c.Name != "":
		s.Name = hashName(c.Name)
	}
	switch {
	case c.Verb == Barrier, c.Verb == Split, c.Verb == Dup:
		s.Type = 0
	case !c.Uneven:
		s.Count = int64(m.N)
	}
}

// whole is the buffer whose size does not depend on the number of ranks: the
// undivided side.
func (c *Call) whole() Mem {
	switch c.Verb {
	case ReduceScatter, Scatter:
		return c.Dst
	case AllToAll:
		if c.Uneven {
			return Mem{Type: partsType(c.DstParts, c.SrcParts)}
		}
		return c.Dst
	default:
		return c.Src
	}
}

// partsType is the type of the first part that has one: a part may be the zero
// Mem, which holds no elements of any type.
func partsType(lists ...[]Mem) kernel.DType {
	for _, list := range lists {
		for _, m := range list {
			if !m.Nothing() {
				return m.Type
			}
		}
	}
	return 0
}

// Text describes the operation for an error, e.g. "AllReduce(10 x float32,
// sum)". The name is what s.Name is the hash of.
func (s Sig) Text(name string) string {
	var b strings.Builder
	b.WriteString(s.Verb.String())
	if s.Uneven {
		b.WriteByte('V')
	}
	var args []string
	switch {
	case s.Verb == Group:
		args = append(args, fmt.Sprintf("%d operations", s.Count))
	case s.Type == 0:
	case s.Uneven:
		args = append(args, s.Type.String())
	default:
		args = append(args, fmt.Sprintf("%d x %s", s.Count, s.Type))
	}
	if s.Red != 0 {
		args = append(args, s.Red.String())
	}
	if s.Verb.Rooted() {
		args = append(args, fmt.Sprintf("root %d", s.Root))
	}
	if s.Name != 0 {
		args = append(args, fmt.Sprintf("name %q", name))
	}
	if len(args) > 0 {
		b.WriteString("(" + strings.Join(args, ", ") + ")")
	}
	return b.String()
}

// hashName is FNV-1a without stepBit, never zero.
func hashName(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	if h &^= stepBit; h == 0 {
		h = stepBit << 1
	}
	return h
}
