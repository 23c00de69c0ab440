package network

import (
	"bytes"
	"encoding/binary"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
)

// Layout of a frame's head, as offsets in bytes: the step, the algorithm, the size
// of the transfer that the frame is a segment of, and the fingerprints of this call
// and of the previous one. A rank that misses data from a sender that is already
// one call further compares the previous fingerprint.
const (
	stepAt          = 0
	algorithmAt     = 8 // one byte
	transferBytesAt = 9 // seven bytes, read together with the algorithm as one word
	thisAt          = 16
	prevAt          = thisAt + fingerprintBytes

	sigBytes         = 24
	nameBytes        = engine.LabelBytes
	fingerprintBytes = sigBytes + nameBytes
)

var _ [transport.HeadBytes - prevAt - fingerprintBytes]byte // it fits

// fingerprint is a call's engine.Sig, with as much of its name as fits.
type fingerprint struct {
	sig  engine.Sig
	name engine.Label
}

func newFingerprint(c *engine.Call) fingerprint {
	f := fingerprint{sig: c.Sig()}
	if f.sig.Name != 0 {
		c.PutLabel(&f.name)
	}
	return f
}

// call returns the description of the call, for errors.
func (f *fingerprint) call() engine.CallInfo { return engine.ReadCall(f.sig, &f.name) }

func (f *fingerprint) put(b []byte) {
	s := &f.sig
	b[0], b[1], b[2], b[3] = byte(s.Verb), byte(s.Type), byte(s.Red), 0
	if s.Uneven {
		b[3] = 1
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(s.Root))
	binary.LittleEndian.PutUint64(b[8:], uint64(s.Count))
	binary.LittleEndian.PutUint64(b[16:], s.Name)
	copy(b[sigBytes:], f.name[:])
}

func readFingerprint(b []byte) (f fingerprint) {
	f.sig = engine.Sig{
		Verb: engine.Verb(b[0]), Type: kernel.DType(b[1]), Red: engine.Red(b[2]), Uneven: b[3] != 0,
		Root:  int32(binary.LittleEndian.Uint32(b[4:])),
		Count: int64(binary.LittleEndian.Uint64(b[8:])),
		Name:  binary.LittleEndian.Uint64(b[16:]),
	}
	copy(f.name[:], b[sigBytes:])
	return f
}

// head is a decoded frame head.
type head struct {
	step       uint64
	algorithm  Algorithm
	this, prev fingerprint
}

func readHead(h *transport.Head) head {
	return head{
		step:      binary.LittleEndian.Uint64(h[stepAt:]),
		algorithm: Algorithm(h[algorithmAt]),
		this:      readFingerprint(h[thisAt:]),
		prev:      readFingerprint(h[prevAt:]),
	}
}

// setTransferBytes stores the size of the transfer in the head.
func setTransferBytes(h *transport.Head, bytes int) {
	binary.LittleEndian.PutUint64(h[algorithmAt:], uint64(bytes)<<8|uint64(h[algorithmAt]))
}

// transferBytes returns the size of the transfer, in bytes.
func transferBytes(h *transport.Head) int {
	return int(binary.LittleEndian.Uint64(h[algorithmAt:]) >> 8)
}

// agrees reports, without decoding, whether a frame belongs to the call of own and
// its sender made the same previous call. In the previous call the two ranks may
// have exchanged no frame.
func agrees(own, h *transport.Head) bool {
	return bytes.Equal(own[:transferBytesAt], h[:transferBytesAt]) &&
		bytes.Equal(own[thisAt:thisAt+sigBytes], h[thisAt:thisAt+sigBytes]) &&
		bytes.Equal(own[prevAt:prevAt+sigBytes], h[prevAt:prevAt+sigBytes])
}
