// Package transport moves bytes between the ranks of a group: what the
// algorithms of engine/network are written over. Package mem is the twin in
// memory that every test can use, package tcp the real one.
package transport

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/wait"
)

// HeadBytes is the size of a frame's head. It has room for the fingerprints
// and names of two operations.
const HeadBytes = 128

// A Head travels before a frame's body. What is in it is the engine's affair:
// it is how ranks find out that they are in different operations, at no extra
// message.
type Head [HeadBytes]byte

// A Mesh is one rank's connections to the other ranks of one group. It has two
// lanes that do not hold each other up: frames, for collectives, and messages.
//
// All calls end when the waiter they are given says so (its group was stopped,
// its context ended, its timeout passed); they return the waiter's error then.
// After any error the Mesh is only good for Close.
type Mesh interface {
	// Rank is this rank's number in the group.
	Rank() int
	// Size is the number of ranks.
	Size() int

	// Exchange sends one frame, receives one, or does both at once, and
	// returns when that is done: out's body may be changed again, in's head
	// and body are filled. Between two ranks frames arrive in the order in
	// which they were sent. Frames are used by one goroutine at a time. Either
	// of out and in may be nil; a frame to or from this rank itself is a
	// mistake of the caller.
	Exchange(w *wait.Waiter, out, in *Frame) error

	// Post announces a message, and does not block. Messages between two
	// ranks with one tag meet in the order in which they were posted; tags are
	// independent of each other. A rank may send to itself.
	Post(m *Message)
	// Finish returns when a message is delivered: the sender's when the
	// receiver has it. It is called by one goroutine per message.
	Finish(w *wait.Waiter, m *Message) error

	// Close ends the connections. Other ranks' calls that still need them fail
	// with a *LostError. It may be called more than once.
	Close() error
	// Leave is Close with something that the others may find in a *Goodbye.
	Leave(why *Head) error
}

// A Frame is one step's data from one rank to another.
type Frame struct {
	Peer int
	Head Head
	Body []byte
}

// A Message is one side of a tagged transfer.
type Message struct {
	Send bool
	Peer int
	Tag  int
	Head Head // of a receive: the sender's, once Finish has returned
	Body []byte
	// Accept, if it is not nil, is asked by a receive's Finish before the
	// message counts as delivered. If it returns an error, so does Finish, and
	// the sender's Finish does not return before its waiter says so.
	Accept func(sent *Head) error

	State any // the transport's
}

// A LengthError says that a body was not as long as the receiver expected. The
// Frame's or Message's Head is the sender's.
type LengthError struct {
	Peer       int
	Want, Sent int
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("rank %d sent %d bytes where %d were expected", e.Peer, e.Sent, e.Want)
}

// A LostError says that the connection to a rank is gone.
type LostError struct {
	Peer int
	Err  error
}

func (e *LostError) Error() string { return fmt.Sprintf("lost rank %d: %v", e.Peer, e.Err) }

// Unwrap returns what the connection reported.
func (e *LostError) Unwrap() error { return e.Err }

// A CorruptError says that something arrived with another checksum than it was
// sent with.
type CorruptError struct {
	Peer int    // who sent it
	Addr string // and from where
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("what rank %d sent from %s arrived damaged", e.Peer, e.Addr)
}

// ErrClosed is the reason of a LostError when the other rank has closed its
// Mesh in good order.
var ErrClosed = errors.New("it has closed the connection")

// A Goodbye is ErrClosed with what the other rank gave to Leave.
type Goodbye struct{ Why Head }

func (g *Goodbye) Error() string { return ErrClosed.Error() }

// Is reports whether target is ErrClosed.
func (g *Goodbye) Is(target error) bool { return target == ErrClosed }
