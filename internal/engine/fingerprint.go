package engine

import (
	"fmt"
	"strings"

	"github.com/tutti-go/tutti/internal/kernel"
)

// A Fingerprint holds the arguments of an operation that must be equal on
// every rank. It has a fixed size and no pointers, so that it can be written into
// memory that other processes map, or into a frame.
type Fingerprint struct {
	Verb     Verb
	Type     kernel.DType
	ReduceOp ReduceOp
	Uneven   bool
	Root     int32
	// Count is the number of elements of the side that the verb does not divide.
	// If the verb divides both sides, it is the number of all elements of a side.
	// It is zero for an uneven form, whose counts are compared pair by pair when
	// data moves.
	Count int64
	// Name is a hash of the operation's name or, with stepBit, of the fingerprint of the call that
	// the operation is a step of. Zero: neither.
	Name uint64
}

// Fingerprint returns the call's fingerprint.
func (c *Call) Fingerprint() Fingerprint {
	var s Fingerprint
	c.PutFingerprint(&s)
	return s
}

// PutFingerprint writes the call's fingerprint to s, field by field. A copy of a
// fingerprint that was just written would stall until those stores complete.
func (c *Call) PutFingerprint(s *Fingerprint) {
	v := c.Verb.Info()
	s.Verb, s.Uneven, s.Type = c.Verb, c.Uneven, 0
	s.ReduceOp, s.Root, s.Count, s.Name = 0, 0, 0, 0
	if v.Typed {
		m := c.whole()
		s.Type = m.Type
		if !c.Uneven {
			s.Count = int64(m.N)
		}
	}
	if v.Reduces {
		s.ReduceOp = c.ReduceOp
	}
	if v.Rooted {
		s.Root = int32(c.Root)
	}
	switch {
	case c.Of != nil:
		s.Name = stepName(c.Of.Fingerprint())
	case c.Name != "":
		s.Name = hashName(c.Name)
	}
}

// whole returns the buffer that Fingerprint.Count counts.
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
func (s Fingerprint) Text(name string) string {
	if call, ok := MethodOf(name); ok && s.Name != 0 {
		return call
	}
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
	if s.ReduceOp != 0 {
		args = append(args, s.ReduceOp.String())
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
