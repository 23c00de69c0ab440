package engine

import (
	"fmt"
	"strings"

	"github.com/tutti-go/tutti/internal/kernel"
)

// A Sig is the fingerprint of an operation: the arguments that must be equal on
// every rank. It has a fixed size and no pointers, so that it can be written into
// memory that other processes map, or into a frame.
type Sig struct {
	Verb   Verb
	Type   kernel.DType
	Red    Red
	Uneven bool
	Root   int32
	// Count is the number of elements of the side that the verb does not divide.
	// If the verb divides both sides, it is the number of all elements of a side.
	// It is zero for an uneven form, whose counts are compared pair by pair when
	// data moves.
	Count int64
	// Name is a hash of the operation's name or, with stepBit, of the fingerprint of the call that
	// the operation is a step of. Zero: neither.
	Name uint64
}

// Sig returns the call's fingerprint.
func (c *Call) Sig() Sig {
	var s Sig
	c.PutSig(&s)
	return s
}

// PutSig writes the call's fingerprint to s, field by field. A copy of a
// fingerprint that was just written would stall until those stores complete.
func (c *Call) PutSig(s *Sig) {
	v := c.Verb.Info()
	s.Verb, s.Uneven, s.Type = c.Verb, c.Uneven, 0
	s.Red, s.Root, s.Count, s.Name = 0, 0, 0, 0
	if v.Typed {
		m := c.whole()
		s.Type = m.Type
		if !c.Uneven {
			s.Count = int64(m.N)
		}
	}
	if v.Reduces {
		s.Red = c.Red
	}
	if v.Rooted {
		s.Root = int32(c.Root)
	}
	switch {
	case c.Of != nil:
		s.Name = stepName(c.Of.Sig())
	case c.Name != "":
		s.Name = hashName(c.Name)
	}
}

// whole returns the buffer that Sig.Count counts.
func (c *Call) whole() Mem {
	v := c.Verb.Info()
	switch {
	case !v.Source.Divided:
		return c.Src
	case v.Dest.Divided && c.Uneven:
		return Mem{Type: partsType(c.DstParts, c.SrcParts)}
	default:
		return c.Dst
	}
}

// partsType returns the type of the first part that is not missing, or zero. A
// part may be the zero Mem, which has no type.
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
// sum)". The caller passes the name, because s.Name holds only its hash.
func (s Sig) Text(name string) string {
	var b strings.Builder
	b.WriteString(s.Verb.FormName(s.Uneven))
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

// hashName returns a hash of an operation's name, without stepBit. It is never zero.
func hashName(name string) uint64 {
	h := uint64(HashStart.Text(name)) &^ stepBit
	return max(h, stepBit<<1)
}
