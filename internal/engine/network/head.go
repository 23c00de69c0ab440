package network

import (
	"bytes"
	"encoding/binary"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
)

// A frame's head: the number of the step, the algorithm, the bytes of the
// transfer that the frame is a segment of, and the fingerprints of this call
// and of the one before. The latter is for a rank that misses something from a
// sender that is already one call further.
const (
	stepAt  = 0
	wayAt   = 8 // one byte
	wholeAt = 9 // seven bytes, read with the algorithm as one word
	thisAt  = 16
	prevAt  = thisAt + markBytes

	sigBytes  = 24
	nameBytes = engine.LabelBytes
	markBytes = sigBytes + nameBytes
)

var _ [transport.HeadBytes - prevAt - markBytes]byte // it fits

// A mark is a call's fingerprint, with as much of its name as fits.
type mark struct {
	sig  engine.Sig
	name engine.Label
}

func newMark(c *engine.Call) mark {
	p := mark{sig: c.Sig()}
	if p.sig.Name != 0 {
		c.PutLabel(&p.name)
	}
	return p
}

func (p *mark) call() engine.CallInfo { return engine.ReadCall(p.sig, &p.name) }

func (p *mark) put(b []byte) {
	s := &p.sig
	b[0], b[1], b[2], b[3] = byte(s.Verb), byte(s.Type), byte(s.Red), 0
	if s.Uneven {
		b[3] = 1
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(s.Root))
	binary.LittleEndian.PutUint64(b[8:], uint64(s.Count))
	binary.LittleEndian.PutUint64(b[16:], s.Name)
	copy(b[sigBytes:], p.name[:])
}

func readMark(b []byte) (p mark) {
	p.sig = engine.Sig{
		Verb: engine.Verb(b[0]), Type: kernel.DType(b[1]), Red: engine.Red(b[2]), Uneven: b[3] != 0,
		Root:  int32(binary.LittleEndian.Uint32(b[4:])),
		Count: int64(binary.LittleEndian.Uint64(b[8:])),
		Name:  binary.LittleEndian.Uint64(b[16:]),
	}
	copy(p.name[:], b[sigBytes:])
	return p
}

// A head is a frame's head, taken apart.
type head struct {
	step       uint64
	way        Algorithm
	this, prev mark
}

func readHead(h *transport.Head) head {
	return head{
		step: binary.LittleEndian.Uint64(h[stepAt:]),
		way:  Algorithm(h[wayAt]),
		this: readMark(h[thisAt:]),
		prev: readMark(h[prevAt:]),
	}
}

func setWhole(h *transport.Head, bytes int) {
	binary.LittleEndian.PutUint64(h[wayAt:], uint64(bytes)<<8|uint64(h[wayAt]))
}

func whole(h *transport.Head) int { return int(binary.LittleEndian.Uint64(h[wayAt:]) >> 8) }

// agrees reports, fast, whether a frame is of the call that own describes, and
// its sender made the same call before it: in that one, the two ranks may have
// sent each other nothing.
func agrees(own, h *transport.Head) bool {
	return bytes.Equal(own[:wholeAt], h[:wholeAt]) &&
		bytes.Equal(own[thisAt:thisAt+sigBytes], h[thisAt:thisAt+sigBytes]) &&
		bytes.Equal(own[prevAt:prevAt+sigBytes], h[prevAt:prevAt+sigBytes])
}
