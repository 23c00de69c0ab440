package control

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/overlay"
)

// maxFrame bounds what one side makes the other read. Before a peer has proved
// that it knows the secret, maxHello does.
const (
	maxFrame = 16 << 20
	maxHello = 64 << 10
)

// A frame is one message on the channel: its length, four bytes, and JSON. The
// encoding of challenge, hello and refused never changes, so that ranks of any two
// versions can refuse each other in words: see docs/design/security.md. New members may
// be added to them; none may be removed, renamed, or be given another meaning.
type frame struct {
	Kind kind `json:"k"`

	// Of challenge, hello and welcome.
	Version int      `json:"version,omitempty"` // of the encoding of these messages: always 1
	Build   *Version `json:"build,omitempty"`   // what the sender runs; nil: it is of protocol 1
	Rank    int      `json:"rank"`
	Size    int      `json:"size,omitempty"`
	Nonce   []byte   `json:"nonce,omitempty"`
	Proof   []byte   `json:"proof,omitempty"`
	TLS     bool     `json:"tls,omitempty"` // what follows is encrypted

	// Of welcome: see Member.Key.
	JobKey []byte `json:"jobKey,omitempty"`

	// Of what the ranks exchange.
	Key     string   `json:"key,omitempty"`
	Members []int    `json:"members,omitempty"`
	Blob    []byte   `json:"blob,omitempty"`
	Blobs   [][]byte `json:"blobs,omitempty"`

	// Of refusals.
	Reason   string `json:"reason,omitempty"`
	Mismatch bool   `json:"mismatch,omitempty"` // ranks are not alike, and none can join
	Taken    bool   `json:"taken,omitempty"`    // another process of the rank is here

	// Of control.
	Message *overlay.Message `json:"message,omitempty"`
}

type kind string

const (
	challenge kind = "challenge" // rank 0 to a new connection: prove yourself
	hello     kind = "hello"     // a rank to rank 0: I am rank r, here is my proof and my blob
	refused   kind = "refused"   // rank 0 to a rank: you cannot join
	welcome   kind = "welcome"   // rank 0 to a rank: my proof, and all blobs
	put       kind = "put"       // a rank to rank 0: my blob of an exchange
	all       kind = "all"       // rank 0 to a rank: all blobs of an exchange
	control   kind = "control"   // any rank to any rank, after Join: a message of package overlay
	beat      kind = "beat"      // both ways: nothing
)

// sendTime is how long a frame may take to leave; sockets have room for many.
const sendTime = 5 * time.Second

// A conn sends and receives frames. Sending is safe for concurrent use.
type conn struct {
	net.Conn // raw, or TLS over it
	raw      net.Conn
	binding  []byte // names the TLS session, if there is one
	in       *bufio.Reader
	mu       sync.Mutex
	welcome  []byte                // rank 0's proof for this rank, until it is sent
	unheard  atomic.Int32          // beats since something was received
	over     chan struct{}         // closed when its reader has ended
	unsent   atomic.Pointer[error] // why something could not be sent
}

func newConn(c net.Conn) *conn {
	return &conn{Conn: c, raw: c, in: bufio.NewReader(c), over: make(chan struct{})}
}

// encode is a frame as it travels.
func (f *frame) encode() ([]byte, error) {
	body, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	if len(body) > maxFrame {
		return nil, fmt.Errorf("a control frame of %d bytes is too long", len(body))
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...), nil
}

func (c *conn) send(f *frame) error {
	bytes, err := f.encode()
	if err != nil {
		return err
	}
	return c.write(bytes, sendTime)
}

// write sends a frame that was encoded. A peer that does not read must not hold up this process for
// longer than limit.
func (c *conn) write(bytes []byte, limit time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := c.Write(bytes)
	if err != nil {
		c.unsent.CompareAndSwap(nil, &err)
		// If the other side has left, the reader finds out, after all that was said
		// before that.
		if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			// A part of it may have left, and what follows would not be understood; or
			// nothing, and the other side would wait for it. It is to find out.
			c.Close()
		}
	}
	return err
}

// because adds to a reader's error why this side has ended the connection, if it
// has: the system tells the first who asks, reader or writer, that a host does not
// answer.
func (c *conn) because(err error) error {
	if why := c.unsent.Load(); why != nil {
		return errors.Join(err, *why)
	}
	return err
}

func (c *conn) receive(limit uint32) (*frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return nil, c.because(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > limit {
		return nil, fmt.Errorf("a control frame of %d bytes is too long", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return nil, c.because(err)
	}
	f := new(frame)
	if err := json.Unmarshal(body, f); err != nil {
		return nil, fmt.Errorf("not a control frame: %w", err)
	}
	c.unheard.Store(0)
	return f, nil
}
