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

// maxFrame is the largest frame, in bytes, that a receiver accepts. maxHello applies until the peer
// has proved that it knows the secret.
const (
	maxFrame = 16 << 20
	maxHello = 64 << 10
)

// A frame is one message on the channel: a length of four bytes, then JSON. The encoding of
// challenge, hello and refused never changes, so that ranks of any two versions can refuse each
// other with a readable reason; see docs/design/security.md. Members may be added to these kinds. No
// member may be removed, renamed or get another meaning.
type frame struct {
	Kind kind `json:"k"`

	// For challenge, hello and welcome.
	Version int      `json:"version,omitempty"` // of the encoding of these kinds: always 1
	Build   *Version `json:"build,omitempty"`   // the sender's version; nil: the sender uses protocol 1
	Rank    int      `json:"rank"`
	Size    int      `json:"size,omitempty"`
	Nonce   []byte   `json:"nonce,omitempty"`
	Proof   []byte   `json:"proof,omitempty"`
	TLS     bool     `json:"tls,omitempty"` // the frames that follow are encrypted

	// For welcome: see Member.Key.
	JobKey []byte `json:"jobKey,omitempty"`

	// For putBlob and allBlobs.
	Key     string   `json:"key,omitempty"`
	Members []int    `json:"members,omitempty"`
	Blob    []byte   `json:"blob,omitempty"`
	Blobs   [][]byte `json:"blobs,omitempty"`

	// For refused.
	Reason   string `json:"reason,omitempty"`
	Mismatch bool   `json:"mismatch,omitempty"` // the ranks have different versions or options; no rank can join
	Taken    bool   `json:"taken,omitempty"`    // another process of this rank has joined

	// For control.
	Message *overlay.Message `json:"message,omitempty"`
}

// A kind is the type of a frame.
type kind string

const (
	challenge kind = "challenge" // rank 0 to a new connection: a nonce, which the rank must sign
	hello     kind = "hello"     // a rank to rank 0: its number, its proof and its blob
	refused   kind = "refused"   // rank 0 to a rank: the rank cannot join
	leaving   kind = "leaving"   // a rank to rank 0, before the welcome: the rank does not wait any longer
	welcome   kind = "welcome"   // rank 0 to a rank: rank 0's proof and all blobs
	putBlob   kind = "put"       // a rank to rank 0: its blob for a Gather
	allBlobs  kind = "all"       // rank 0 to a rank: all blobs of a Gather
	control   kind = "control"   // any rank to any rank, after Join: a message of package overlay
	heartbeat kind = "beat"      // both ways: no content; see sendHeartbeats
)

// sendTime bounds the write of one frame. Socket buffers have room for many frames, so only a peer
// that does not read reaches the limit.
const sendTime = 5 * time.Second

// A conn sends and receives frames. Sending is safe for concurrent use. One goroutine receives.
type conn struct {
	net.Conn   // raw, or TLS over raw
	raw        net.Conn
	binding    []byte // identifies the TLS session; nil without TLS
	in         *bufio.Reader
	mu         sync.Mutex            // held while frames are written; the writer sets the deadline
	welcome    []byte                // rank 0's proof for this rank; kept until the welcome frame is sent
	unanswered atomic.Int32          // heartbeats sent since the last frame was received
	readerDone chan struct{}         // closed when the receiving goroutine has ended
	writeErr   atomic.Pointer[error] // the first error of a write
}

func newConn(c net.Conn) *conn {
	return &conn{Conn: c, raw: c, in: bufio.NewReader(c), readerDone: make(chan struct{})}
}

// encode returns the frame with its length prefix.
func (f *frame) encode() ([]byte, error) {
	body, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	if len(body) > maxFrame {
		return nil, fmt.Errorf("a message of %d bytes is too long: the limit is %d bytes", len(body), maxFrame)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...), nil
}

// send encodes and writes a frame. It fails after sendTime.
func (c *conn) send(f *frame) error {
	bytes, err := f.encode()
	if err != nil {
		return err
	}
	return c.write(bytes, sendTime)
}

// write sends encoded frames. It fails after limit, so that a peer that does not read cannot block
// this process. After any error but a reset by the peer it closes the connection.
func (c *conn) write(bytes []byte, limit time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := c.Write(bytes)
	if err != nil {
		c.writeErr.CompareAndSwap(nil, &err)
		// After EPIPE or ECONNRESET the reader must still receive the frames that the peer sent
		// before it left.
		if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			// The peer may have received a part of the frame and would misread the next one, or
			// nothing and would wait for it. Closing tells the peer.
			c.Close()
		}
	}
	return err
}

// withWriteErr joins the error of an earlier write to a read error. The kernel reports ETIMEDOUT or
// EHOSTUNREACH only once, to the first call on the socket, which may have been a write.
func (c *conn) withWriteErr(err error) error {
	if why := c.writeErr.Load(); why != nil {
		return errors.Join(err, *why)
	}
	return err
}

// receive reads a frame of at most limit bytes. It blocks until a frame arrives, the read deadline
// passes or the connection ends.
func (c *conn) receive(limit uint32) (*frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return nil, c.withWriteErr(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > limit {
		return nil, fmt.Errorf("a message of %d bytes is too long: the limit is %d bytes", n, limit)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return nil, c.withWriteErr(err)
	}
	f := new(frame)
	if err := json.Unmarshal(body, f); err != nil {
		return nil, fmt.Errorf("the message cannot be decoded: %w", err)
	}
	c.unanswered.Store(0)
	return f, nil
}
