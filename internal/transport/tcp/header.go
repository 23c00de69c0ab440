package tcp

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tutti-go/tutti/internal/transport"
)

// The kinds of things that follow each other on a connection.
const (
	kindFrame     = 1 + iota // a frame; a body follows
	kindReady                // a message is ready to be sent
	kindClear                // its receive is there: send it
	kindData                 // a piece of a message; a body follows
	kindWithdrawn            // a message that was ready no longer is
	kindBye                  // nothing more will come
	kindEnd
)

const (
	// headerBytes is the size of what comes before every body.
	headerBytes = 32 + transport.HeadBytes
	headerMagic = 0x31697474 // "tti1"
	// maxBody bounds what a header may announce.
	maxBody = min(1<<40, math.MaxInt)
)

// A header announces what follows: magic, kind, length, id and tag in 32
// bytes, then the caller's head, which only frames and ready messages use.
type header struct {
	kind   byte
	length int    // of the body; of a ready message: of all of it
	id     uint64 // a frame's number on its connection, a message's among the sender's
	tag    int
	// sum is the checksum of a frame or of a piece of a message, in the place of
	// the tag, which those do not have; zero: it has none.
	sum uint64
}

// put writes h without its head.
func (h *header) put(b []byte) {
	_ = b[31]
	binary.LittleEndian.PutUint32(b, headerMagic)
	binary.LittleEndian.PutUint32(b[4:], uint32(h.kind))
	binary.LittleEndian.PutUint64(b[8:], uint64(h.length))
	binary.LittleEndian.PutUint64(b[16:], h.id)
	binary.LittleEndian.PutUint64(b[24:], uint64(h.tag)|h.sum)
}

// parse reads what put has written, and trusts none of it.
func (h *header) parse(b []byte) error {
	_ = b[31]
	if magic := binary.LittleEndian.Uint32(b); magic != headerMagic {
		return fmt.Errorf("a header begins with %#08x", magic)
	}
	kind := binary.LittleEndian.Uint32(b[4:])
	if kind == 0 || kind >= kindEnd {
		return fmt.Errorf("a header of unknown kind %d", kind)
	}
	length := binary.LittleEndian.Uint64(b[8:])
	if length > maxBody {
		return fmt.Errorf("a header that announces %d bytes", length)
	}
	h.kind = byte(kind)
	h.length = int(length)
	h.id = binary.LittleEndian.Uint64(b[16:])
	h.sum = binary.LittleEndian.Uint64(b[24:])
	h.tag = int(h.sum)
	return nil
}
