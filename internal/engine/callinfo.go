package engine

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/tutti-go/tutti/internal/kernel"
)

// A CallInfo describes a call in a failure: its fingerprint and its name, or the beginning of the
// name. The zero CallInfo is no call.
type CallInfo struct {
	Fingerprint Fingerprint `json:"sig"`
	Name        string      `json:"name,omitempty"`
	Device      bool        `json:"device,omitempty"` // its buffers are in device memory
}

// Info describes the call. For a step it describes the call of which it is one.
func (c *Call) Info() CallInfo {
	if c.Of != nil {
		c = c.Of
	}
	return CallInfo{Fingerprint: c.Fingerprint(), Name: c.Name, Device: c.OnDevice()}
}

func (c CallInfo) String() string {
	text := c.Fingerprint.Text(c.Name)
	if c.Device {
		text += " on a device"
	}
	return text
}

// LabelBytes is the size of a Label.
const LabelBytes = 32

// A Label follows the fingerprint of a call in memory or messages for other ranks. It holds the call's
// name, or the call of which it is a step, for error texts. A name that does not fit is cut. The
// fingerprint of a call that needs a Label has a Name that is not zero.
type Label [LabelBytes]byte

// A step is a call that an engine makes to carry out a part of the user's call; see Call.Of. Its
// Label holds the user's call: one byte each for verb, element type and operator, then the root and
// the count as varints, then the name.
const (
	stepBit = 1    // in Fingerprint.Name: the call is a step
	formBit = 0x80 // in the operator's byte of a Label: the uneven form
	unnamed = 2    // a value of Fingerprint.Name for a call whose name is known only as text
)

// Labelled reports whether the call needs a Label.
func (c *Call) Labelled() bool { return c.Name != "" || c.Of != nil }

// PutLabel writes the call's Label: the name, or for a step of another call that call's fingerprint and name.
// A text that is too long is cut. It does not allocate.
func (c *Call) PutLabel(l *Label) {
	n, name := 0, c.Name
	if c.Of != nil {
		s := c.Of.Fingerprint()
		l[0], l[1], l[2] = byte(s.Verb), byte(s.Type), byte(s.ReduceOp)
		if s.Uneven {
			l[2] |= formBit
		}
		n = 3
		n += binary.PutUvarint(l[n:], uint64(uint32(s.Root)))
		n += binary.PutUvarint(l[n:], uint64(s.Count))
		name = c.Of.Name
	}
	n += copy(l[n:LabelBytes-1], name)
	clear(l[n:])
}

// ReadCall returns the description of another rank's call from its fingerprint and, if the
// fingerprint has a Name, its Label. The caller passes a copy of the Label. Bytes that the other rank
// overwrote meanwhile give a wrong description, and nothing worse.
func ReadCall(s Fingerprint, l *Label) CallInfo {
	if s.Name == 0 {
		return CallInfo{Fingerprint: s}
	}
	rest := l[:]
	if s.Name&stepBit != 0 {
		of := Fingerprint{Verb: Verb(l[0]), Type: kernel.DType(l[1]), ReduceOp: ReduceOp(l[2] &^ formBit), Uneven: l[2]&formBit != 0}
		rest = l[3:]
		root, n := binary.Uvarint(rest)
		if n <= 0 {
			return CallInfo{Fingerprint: s}
		}
		rest = rest[n:]
		count, n := binary.Uvarint(rest)
		if n <= 0 {
			return CallInfo{Fingerprint: s}
		}
		rest = rest[n:]
		of.Root, of.Count = int32(root), int64(count)
		if len(rest) > 0 && rest[0] != 0 {
			of.Name = unnamed
		}
		s = of
	}
	name, _, _ := bytes.Cut(rest, []byte{0})
	return CallInfo{Fingerprint: s, Name: strings.ToValidUTF8(string(name), "")}
}

// AppendCall appends the encoding of a call for ReadCalls, with its whole name.
func AppendCall(b []byte, c *CallInfo) []byte {
	call := packCall(c)
	return append(binary.AppendUvarint(b, uint64(len(call))), call...)
}

// ReadCalls decodes calls up to the first invalid one, which it drops with everything after it. The bytes
// come from another rank and may hold anything.
func ReadCalls(b []byte) (list []CallInfo) {
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			break
		}
		u := unpacker{from: b[size : size+int(n)]}
		b = b[size+int(n):]
		c := u.call()
		if u.bad {
			break
		}
		list = append(list, c)
	}
	return list
}

// validPrefix returns the text without an incomplete character at its end.
func validPrefix(b []byte) string {
	for len(b) > 0 {
		if r, n := utf8.DecodeLastRune(b); r != utf8.RuneError || n > 1 {
			break
		}
		b = b[:len(b)-1]
	}
	return string(b)
}

// stepName returns the Name in the fingerprint of a step: a hash of the fingerprint of the call of
// which it is a step.
func stepName(s Fingerprint) uint64 {
	form := uint64(0)
	if s.Uneven {
		form = 1
	}
	head := uint64(s.Verb) | uint64(s.Type)<<8 | uint64(s.ReduceOp)<<16 | form<<24 | uint64(uint32(s.Root))<<32
	return uint64(HashStart.Word(head).Word(uint64(s.Count)).Word(s.Name)) | stepBit
}
