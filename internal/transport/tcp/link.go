package tcp

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/tutti-go/tutti/internal/race"
	"github.com/tutti-go/tutti/internal/transport"
	"golang.org/x/sys/unix"
)

// smallBody is the longest body, in bytes, that is copied behind its header, so that both move in
// one plain call. For few bytes a copy is cheaper than a vector.
const smallBody = 2 << 10

// errNoGoodbye is the reason for a connection that ends without a goodbye.
var errNoGoodbye = errors.New("the connection ended without a goodbye: its process has exited, or a transfer failed")

// A link is one lane's connection to one peer, which carries headers and bodies. In each direction
// at most one is in progress. Mesh.exchangeMu guards a link of collectives,
// messenger.mu a link of messages. A link that is passed to closeLinks belongs to the goroutine
// there, without a lock.
type link struct {
	peer int
	conn
	out      sending
	in       receiving
	sent     uint64 // frames sent
	received uint64

	byeSent bool // the goodbye is sent
	broken  bool // a header or body is partly sent and will not be completed
}

func newLink(peer int, c *conn) *link {
	l := &link{peer: peer, conn: *c}
	l.in.start(nil)
	return l
}

// sending holds the rest of a header and its body.
type sending struct {
	buf     [headerBytes + smallBody]byte
	head    []byte
	body    []byte
	partial bool // a part is written
}

// start begins to send. The caller must not change body until send reports done.
func (s *sending) start(h header, head *transport.Head, body []byte) {
	race.ReadRange(unsafe.Pointer(unsafe.SliceData(body)), len(body))
	h.put(s.buf[:])
	if head != nil {
		copy(s.buf[headerBytes-len(head):], head[:])
	} else {
		clear(s.buf[headerBytes-len(head) : headerBytes])
	}
	s.head, s.body, s.partial = s.buf[:headerBytes], body, false
	if len(body) <= smallBody {
		s.head = s.buf[:headerBytes+copy(s.buf[headerBytes:], body)]
		s.body = nil
	}
}

// send writes as many bytes as the socket accepts without blocking. It reports whether any were
// written and whether all are. After an error nothing can be sent on the link any more: the caller
// may still receive, because the peer's goodbye may be unread, and the mesh then closes the link. The
// link refers to the body until all is written or the link is closed.
func (l *link) send() (moved, done bool, err error) {
	s := &l.out
	n, err := l.write(s.head, s.body)
	if err != nil {
		return false, false, err
	}
	if n > 0 {
		s.partial = true
		k := min(n, len(s.head))
		s.head = s.head[k:]
		s.body = s.body[n-k:]
	}
	if len(s.head)+len(s.body) > 0 || !l.flushed() {
		return n > 0, false, nil
	}
	s.head, s.body, s.partial = nil, nil, false // releases the caller's memory
	return true, true, nil
}

// receiving holds the rest of a header and of the body expected with it.
type receiving struct {
	buf       [headerBytes + smallBody]byte
	head      []byte
	body      []byte
	smallBody []byte // destination of a body that arrives behind its header in buf
	fullBody  []byte // the destination of the body
	header    header
	parsed    bool // the header is complete
}

// start begins to receive a header, and the body that the caller expects after it.
func (r *receiving) start(body []byte) {
	r.head, r.body, r.smallBody, r.fullBody, r.parsed = r.buf[:headerBytes], body, nil, body, false
	if len(body) <= smallBody {
		r.head, r.body, r.smallBody = r.buf[:headerBytes+len(body)], nil, body
	}
}

// started reports whether a part was read.
func (r *receiving) started() bool { return r.parsed || len(r.head) < headerBytes+len(r.smallBody) }

// receive reads without blocking. It reports whether anything moved, and whether the header and
// body of start are complete. It stops after the header if the kind or the length differs.
func (l *link) receive(kind byte, length int) (moved, done bool, err error) {
	r := &l.in
	n, err := l.read(r.head, r.body)
	if err != nil {
		return false, false, err
	}
	if n == 0 {
		return false, false, nil
	}
	k := min(n, len(r.head))
	r.head = r.head[k:]
	r.body = r.body[n-k:]
	if !r.parsed {
		if len(r.head) > len(r.smallBody) {
			return true, false, nil
		}
		if err := r.header.parse(r.buf[:]); err != nil {
			return true, false, err
		}
		r.parsed = true
		if r.header.kind != kind || r.header.length != length {
			return true, true, nil
		}
	}
	if len(r.head)+len(r.body) > 0 {
		return true, false, nil
	}
	copy(r.smallBody, r.buf[headerBytes:])
	race.WriteRange(unsafe.Pointer(unsafe.SliceData(r.fullBody)), len(r.fullBody))
	return true, true, nil
}

// headBytes returns the Head of the received header.
func (r *receiving) headBytes() *transport.Head {
	return (*transport.Head)(r.buf[headerBytes-transport.HeadBytes : headerBytes])
}

// lost returns the error for the end of the connection. If a write failed, the peer's goodbye may
// still be unread.
func (l *link) lost(err error) error {
	if damaged := (*transport.CorruptError)(nil); errors.As(err, &damaged) {
		return err
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		if l.receivedBye() {
			err = l.goodbye()
		}
	}
	if errors.Is(err, io.EOF) {
		err = errNoGoodbye
	}
	return &transport.LostError{Peer: l.peer, Err: err}
}

// receivedBye reads the rest of the input and reports whether it ends with a goodbye.
func (l *link) receivedBye() bool {
	if l.in.started() {
		return false
	}
	for l.in.start(nil); ; {
		moved, done, err := l.receive(kindBye, 0)
		if done || !moved || err != nil {
			return done && l.in.header.kind == kindBye
		}
	}
}

// goodbye returns the goodbye that the peer has sent.
func (l *link) goodbye() error { return &transport.Goodbye{Why: *l.in.headBytes()} }

// unexpected returns the error for a header of the wrong kind.
func (l *link) unexpected() error {
	h := &l.in.header
	if h.kind == kindBye {
		return l.lost(l.goodbye())
	}
	return l.lost(fmt.Errorf("it sent a header of kind %d which is not valid here", h.kind))
}
