// Package transport defines how the algorithms of engine/network move bytes between the ranks of a
// group. Package tcp implements it for processes, package mem in memory for tests.
package transport

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/match"
	"github.com/tutti-go/tutti/internal/wait"
)

// HeadBytes is the size of a frame's head. It has room for the fingerprints and names of two
// operations.
const HeadBytes = 128

// A Head travels before a frame's body. The engine defines its content. By the heads, ranks detect
// without an extra message that they are in different operations.
type Head [HeadBytes]byte

// A Mesh is one rank's connections to the other ranks of one group. It has two independent lanes:
// frames, for collectives, and messages.
//
// A blocking call ends when its waiter ends: the group was stopped, the context ended or the
// timeout passed. The call then returns the waiter's error. After any error of Exchange only Close
// may be called.
type Mesh interface {
	// Rank is this rank's number in the group.
	Rank() int
	// Size is the number of ranks.
	Size() int
	// Name is the name of the transport, for people.
	Name() string

	// Exchange sends one frame, receives one frame, or does both at once; out or in may be nil.
	// When it returns, out.Body may be reused, and in.Head and in.Body are filled. Frames between
	// two ranks arrive in the order in which they were sent. Exchange must not be called
	// concurrently. The peer must not be this rank.
	Exchange(w *wait.Waiter, out, in *Frame) error

	Messenger

	// Close ends the connections. Calls of other ranks that still need them fail with a *LostError.
	// Close may be called more than once.
	Close() error
	// Leave is Close with a reason, which other ranks may find in a *Goodbye.
	Leave(why *Head) error
}

// A Frame is one step's data from one rank to another. The caller owns Body; Exchange uses it until
// it returns.
type Frame struct {
	Peer int
	Head Head
	Body []byte
}

// A Messenger is one rank's message lane in a group. Package match defines which receive gets which
// message.
type Messenger interface {
	// Handle sets the handler. It is called once, before the other methods.
	Handle(h Handler)

	// Post announces m and the messages linked to it by Next, in this order, and does not block. It
	// clears Next. A rank may send to itself.
	Post(m *Message)

	// Finish returns when a message is delivered: a send, when the receiver has taken the data, or
	// waits for it with a receive that is not Patient and m.Body is not accessed any more. One goroutine calls it once per message. After an error the Messenger accesses m.Body no more,
	// and m is withdrawn.
	//
	// A receive that fails before its data is on the way takes no message: the message that it was
	// matched with waits for another receive, before later ones, and m.Untaken is true. A receive
	// from any rank fails with a *LostError only if every other rank is lost. The error
	// wait.ErrStopped may come before the group is stopped, if the sender has withdrawn the message.
	Finish(w *wait.Waiter, m *Message) error

	// Notify passes a note to the handler of a peer. It does not block. The note arrives when the
	// peer is in Finish; it is dropped if there is no way to send it now.
	Notify(peer int, n *Note)
}

// A Handler is called by a Messenger, which may hold its locks. The methods must not wait and must
// not call the Messenger.
type Handler interface {
	// Accept is called for a receive that was matched, before its data moves, with m.From, m.Kind
	// and m.Len set, in Post or in Finish, also of another message. It may set m.Body. If it returns an error, Finish returns that
	// error, and the message waits for another receive. If it returns nil, m.Body has at least
	// m.Len bytes.
	Accept(m *Message) error
	// Note is called for each note that arrives.
	Note(from int, n *Note)
}

// AnyRank is the Peer of a receive from any rank.
const AnyRank = match.AnyRank

// A Message is one side of a tagged transfer. The caller owns Body; the Messenger uses it from Post
// until Finish returns.
type Message struct {
	Send bool
	Peer int // the other rank; of a receive: may be AnyRank
	Tag  int
	Kind uint8 // of the data, defined by the caller; of a matched receive: the sender's
	Body []byte

	// Patient is set by the caller of a receive that may end without a message while the group goes
	// on. If the waiter's context ends while the data is on the way, Finish still waits for the
	// data, for PatientFor. A receive that is not Patient waits until it is matched, or the group
	// fails.
	Patient bool

	From int // of a matched receive: the sender
	Len  int // of a matched receive: the number of bytes that the sender sends

	// Matched is true when the peer's side is known. A message that is neither matched nor done
	// waits for a call of the peer.
	Matched atomic.Bool
	// Posted is how often the message was posted, and Delivered what Posted was when the message was
	// delivered last. A Messenger need not set them.
	Posted    uint64
	Delivered atomic.Uint64
	// Untaken is valid after Finish of a receive has failed; see Messenger.
	Untaken bool
	// OtherTag is valid if Untaken is true: the tag of another message that waits for a receive from Peer; nil: none is known.
	OtherTag *int

	Next *Message // see Messenger.Post

	Owner any // for the caller
	State any // for the Messenger, which may find the State of an earlier use
}

// Done reports whether the message is delivered, so that Finish would return nil at once. It may be
// false although the message is delivered.
func (m *Message) Done() bool { return m.Posted != 0 && m.Delivered.Load() == m.Posted }

// PatientFor is how long a Patient receive waits for data that is on the way after its context has
// ended.
const PatientFor = 10 * time.Second

// NoteBytes is the size of a Note.
const NoteBytes = 96

// A Note is a short notification between ranks. The caller of the Messenger defines its content.
type Note [NoteBytes]byte

// A LengthError says that a body does not have the length that the receiver expects. The Head of
// the Frame is the sender's.
type LengthError struct {
	Peer       int
	Want, Sent int
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("rank %d sent %d bytes where %d were expected", e.Peer, e.Sent, e.Want)
}

// A LostError says that the connection to a rank has ended.
type LostError struct {
	Peer int
	Err  error
}

func (e *LostError) Error() string { return fmt.Sprintf("lost rank %d: %v", e.Peer, e.Err) }

// Unwrap returns the error of the connection.
func (e *LostError) Unwrap() error { return e.Err }

// A CorruptError says that a frame or message arrived with a wrong checksum.
type CorruptError struct {
	Peer int    // the sender
	Addr string // the sender's address
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("data from rank %d at %s arrived with a wrong checksum", e.Peer, e.Addr)
}

// ErrClosed is the Err of a LostError if the other rank has closed its Mesh.
var ErrClosed = errors.New("it has closed the connection")

// A Goodbye is ErrClosed with the reason that the other rank passed to Leave.
type Goodbye struct{ Why Head }

func (g *Goodbye) Error() string { return ErrClosed.Error() }

// Is reports whether target is ErrClosed.
func (g *Goodbye) Is(target error) bool { return target == ErrClosed }
