package tcp

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tutti-go/tutti/internal/transport"
)

// The kinds of headers on a connection.
const (
	kindFrame     = 1 + iota // a frame; a body follows
	kindReady                // announces a message
	kindClear                // the receive is posted: send the data
	kindData                 // a piece of a message; a body follows
	kindWithdrawn            // an announced message is withdrawn
	kindBye                  // the last header: the sender has closed its mesh
	kindNote                 // a note, in place of the Head
	kindEnd
)

const (
	// headerBytes is the size of the header before every body.
	headerBytes = 32 + transport.HeadBytes
	headerMagic = 0x31697474 // "tti1" in little-endian order
	// maxBody bounds the length in a header, in bytes.
	maxBody = min(1<<40, math.MaxInt)
)

// A header precedes each body. It is encoded as magic, kind, type, length, id and tag in 32 bytes. The
// Head follows, which only frames, goodbyes and notes use.
type header struct {
	kind   byte
	elem   uint8  // of an announcement: the Kind of the message
	length int    // bytes of the body; of an announcement: of the whole message
	id     uint64 // a frame's number on its connection, or a message's number at its sender
	tag    int
	// sum is the checksum of a frame or a piece, zero if there is none. It is encoded in place of
	// the tag, which those kinds do not have.
	sum uint64
}

// put encodes h without its Head.
func (h *header) put(b []byte) {
	_ = b[31]
	binary.LittleEndian.PutUint32(b, headerMagic)
	binary.LittleEndian.PutUint32(b[4:], uint32(h.kind)|uint32(h.elem)<<8)
	binary.LittleEndian.PutUint64(b[8:], uint64(h.length))
	binary.LittleEndian.PutUint64(b[16:], h.id)
	binary.LittleEndian.PutUint64(b[24:], uint64(h.tag)|h.sum)
}

// parse decodes a header of at least 32 bytes into h. An invalid header is an error, and h is then unchanged.
func (h *header) parse(b []byte) error {
	_ = b[31]
	if magic := binary.LittleEndian.Uint32(b); magic != headerMagic {
		return fmt.Errorf("it sent a header that begins with %#08x", magic)
	}
	kind := binary.LittleEndian.Uint32(b[4:])
	if k := kind & 0xff; k == 0 || k >= kindEnd || kind > 0xffff {
		return fmt.Errorf("it sent a header of unknown kind %#x", kind)
	}
	length := binary.LittleEndian.Uint64(b[8:])
	if length > maxBody {
		return fmt.Errorf("it sent a header with a length of %d bytes", length)
	}
	h.kind, h.elem = byte(kind), byte(kind>>8)
	h.length = int(length)
	h.id = binary.LittleEndian.Uint64(b[16:])
	h.sum = binary.LittleEndian.Uint64(b[24:])
	h.tag = int(h.sum)
	return nil
}
