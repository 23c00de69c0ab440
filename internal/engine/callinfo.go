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
	Sig    Sig    `json:"sig"`
	Name   string `json:"name,omitempty"`
	Device bool   `json:"device,omitempty"` // its buffers are in device memory
}

// Info describes the call. For a step it describes the call of which it is one.
func (c *Call) Info() CallInfo {
	if c.Of != nil {
		c = c.Of
	}
	return CallInfo{Sig: c.Sig(), Name: c.Name, Device: c.OnDevice()}
}

func (c CallInfo) String() string {
	text := c.Sig.Text(c.Name)
	if c.Device {
		text += " on a device"
	}
	return text
}

// LabelBytes is the size of a Label.
const LabelBytes = 32

// A Label is what a rank shows other ranks of a call, after its fingerprint, for errors: the call's
// name, or the call of which it is a step. A name is cut if there is no room for it. The fingerprint
// of a call that needs a Label has a Name that is not zero.
type Label [LabelBytes]byte

// stepBit is set in the Name of the fingerprint of a step. Its Label holds the call that it is a
// step of: verb, element type, reduction and form in a byte each but for the last two, then the root,
// the count and the name.
const (
	stepBit = 1
	formBit = 0x80
)

// Labelled reports whether other ranks are shown a Label of the call.
func (c *Call) Labelled() bool { return c.Name != "" || c.Of != nil }

// PutLabel writes the call's Label. It does not allocate.
func (c *Call) PutLabel(l *Label) {
	n, name := 0, c.Name
	if c.Of != nil {
		s := c.Of.Sig()
		l[0], l[1], l[2] = byte(s.Verb), byte(s.Type), byte(s.Red)
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

// ReadCall describes a call of which a rank has shown the fingerprint and, if that has a Name, the
// Label.
func ReadCall(s Sig, l *Label) CallInfo {
	if s.Name == 0 {
		return CallInfo{Sig: s}
	}
	rest := l[:]
	if s.Name&stepBit != 0 {
		of := Sig{Verb: Verb(l[0]), Type: kernel.DType(l[1]), Red: Red(l[2] &^ formBit), Uneven: l[2]&formBit != 0}
		rest = l[3:]
		root, n := binary.Uvarint(rest)
		if n <= 0 {
			return CallInfo{Sig: s}
		}
		rest = rest[n:]
		count, n := binary.Uvarint(rest)
		if n <= 0 {
			return CallInfo{Sig: s}
		}
		rest = rest[n:]
		of.Root, of.Count = int32(root), int64(count)
		if len(rest) > 0 && rest[0] != 0 {
			of.Name = 1 << 1 // there is a name
		}
		s = of
	}
	name, _, _ := bytes.Cut(rest, []byte{0})
	return CallInfo{Sig: s, Name: strings.ToValidUTF8(string(name), "")}
}

// AppendCall appends a call as ReadCalls reads it, with its whole name.
func AppendCall(b []byte, c *CallInfo) []byte {
	call := packCall(c)
	return append(binary.AppendUvarint(b, uint64(len(call))), call...)
}

// ReadCalls reads calls up to the first that makes no sense.
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

// validPrefix is the text up to a character that was cut.
func validPrefix(b []byte) string {
	for len(b) > 0 {
		if r, n := utf8.DecodeLastRune(b); r != utf8.RuneError || n > 1 {
			break
		}
		b = b[:len(b)-1]
	}
	return string(b)
}

// stepName is the Name in the fingerprint of a step: a hash of the fingerprint of the call that it is
// a step of.
func stepName(s Sig) uint64 {
	form := uint64(0)
	if s.Uneven {
		form = 1
	}
	head := uint64(s.Verb) | uint64(s.Type)<<8 | uint64(s.Red)<<16 | form<<24 | uint64(uint32(s.Root))<<32
	return uint64(HashStart.Word(head).Word(uint64(s.Count)).Word(s.Name)) | stepBit
}
