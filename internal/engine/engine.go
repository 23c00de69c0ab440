// Package engine is what stands between the public API and the ways of moving
// data: the interface that every engine implements, the description of an
// operation, the checks on its arguments, its fingerprint, and the reason for
// which a group has ended.
//
// Package enginetest holds the conformance suite: an engine is done when it
// passes.
package engine

import (
	"context"
	"unsafe"

	"github.com/tutti-go/tutti/internal/wait"
)

// An Engine is one rank's side of a group of ranks.
//
// A group fails as a whole: when an operation fails on one rank, the first
// cause reaches all ranks, their blocked calls return it, and so does every
// later call.
type Engine interface {
	// Rank is this rank's number in the group.
	Rank() int
	// Size is the number of ranks.
	Size() int

	// Run carries out calls as one operation and returns when this rank's
	// part of it is over: its results are there, and no other rank reads or
	// writes its memory any more. The calls have passed Check; the engine
	// does not keep them. Run is called by one goroutine at a time, and seq
	// grows by one with every Run. An error is always a *Failure.
	Run(ctx context.Context, seq uint64, calls []Call) error

	// Post announces a message without blocking. Messages between two ranks
	// with one tag are matched in the order in which they were posted.
	Post(m *Message)
	// Finish waits until a posted message has been delivered. It may be
	// called by one goroutine per message. An error is always a *Failure.
	Finish(ctx context.Context, m *Message) error

	// Sub returns this rank's side of a new group that consists of the given
	// ranks of this one, in that order. All members call it with the same
	// arguments, right after an operation with sequence number seq told them
	// who the members are. It returns when all members have come; if that
	// fails, this group has failed. See Form.
	Sub(ctx context.Context, seq uint64, members []int) (Engine, error)

	// Alloc returns zeroed memory that every rank of this host can see. All
	// ranks call it together.
	Alloc(ctx context.Context, seq uint64, bytes int) (*Region, error)

	// SameHost reports which ranks share a host with this one: each rank's
	// host is named by the lowest rank on it.
	SameHost() []int

	// Fail ends the group with a cause, unless it has one. It may be called by
	// any goroutine. It waits for no operation, but may take a moment to find
	// out whether another rank has failed first.
	Fail(f *Failure)
	// Failure returns the first cause, or nil while the group is well.
	Failure() *Failure
	// Failed is closed when the group has failed.
	Failed() <-chan struct{}

	// Close tells the other ranks that this one makes no more calls. Calls
	// of theirs that need it fail; what it has already done stands.
	Close() error
}

// A Hosted engine waits in a host, such as a simulator, and so does all that
// uses it.
type Hosted interface {
	Engine
	// Host is where it waits.
	Host() wait.Scheduler
}

// A Roster is what a process knows of the others in its job.
type Roster interface {
	// Lost returns the ranks that are known to be lost.
	Lost() []int
	// Left returns the ranks that are known to have left the job in good order.
	Left() []int
	// Hasten has the process leave the job without waiting for the others.
	Hasten()
}

// An AbsentError is why processes could not form a group: some have not come in
// the time that there was.
type AbsentError struct {
	Ranks []int // those that are known not to have come
	Err   error
}

func (e *AbsentError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *AbsentError) Unwrap() error { return e.Err }

// A Region is memory that every rank of a host can see.
type Region struct {
	Ptr    unsafe.Pointer
	Bytes  int
	Mapped bool // it is mapped for this alone, and not part of Go's heap
	// Free gives the memory back. The caller calls it once, when no rank uses
	// the memory any more.
	Free func() error
}

// NewRegion returns zeroed memory of this process, which the collector frees.
func NewRegion(bytes int) *Region {
	mem := make([]uint64, (bytes+7)/8)
	return &Region{Ptr: unsafe.Pointer(unsafe.SliceData(mem)), Bytes: bytes, Free: func() error { return nil }}
}
