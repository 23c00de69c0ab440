// Package transport defines how the algorithms of engine/network move bytes between the ranks of a
// group. Package tcp implements it for processes, package mem in memory for tests.
package transport

import (
	"errors"
	"fmt"

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
// timeout passed. The call then returns the waiter's error. After any error only Close may be
// called.
type Mesh interface {
	// Rank is this rank's number in the group.
	Rank() int
	// Size is the number of ranks.
	Size() int

	// Exchange sends one frame, receives one frame, or does both at once; out or in may be nil.
	// When it returns, out.Body may be reused, and in.Head and in.Body are filled. Frames between
	// two ranks arrive in the order in which they were sent. Exchange must not be called
	// concurrently. The peer must not be this rank.
	Exchange(w *wait.Waiter, out, in *Frame) error

	// Post announces a message and does not block. Sends and receives between two ranks with the
	// same tag match in the order in which they were posted. Tags are independent of each other. A
	// rank may send to itself.
	Post(m *Message)
	// Finish returns when a message is delivered, on the sender's side when the receiver has it.
	// One goroutine calls it once per message.
	Finish(w *wait.Waiter, m *Message) error

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

// A Message is one side of a tagged transfer. The caller owns Body; the transport uses it from Post
// until Finish returns.
type Message struct {
	Send bool
	Peer int
	Tag  int
	Head Head // of a receive: the sender's head, valid after Finish
	Body []byte
	// Accept, if not nil, is called by Finish of a receive before delivery. If it returns an error,
	// Finish returns that error, and Finish of the sender returns only when its waiter ends.
	Accept func(sent *Head) error

	State any // owned by the transport
}

// A LengthError says that a body does not have the length that the receiver expects. The Head of
// the Frame or Message is the sender's.
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
