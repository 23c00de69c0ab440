// Package engine defines the interface between the public API and the engines,
// which move data. It holds the description of an operation, the checks on its
// arguments, its fingerprint, and the failure that has ended a group.
//
// Package enginetest holds the conformance suite, which every engine must pass.
package engine

import (
	"context"
	"unsafe"

	"github.com/tutti-go/tutti/internal/wait"
)

// An Engine is one rank's part of a group of ranks.
//
// A group fails as a whole: when an operation fails on one rank, the first
// failure reaches all ranks. Their blocked calls and all later calls return it.
type Engine interface {
	// Rank returns this rank's number in the group.
	Rank() int
	// Size returns the number of ranks.
	Size() int

	// Run carries out calls as one operation and returns when this rank's
	// part is complete: its results are stored, and no other rank reads or
	// writes its memory any more. The calls have passed Check. The engine
	// does not keep them. Run must not be called concurrently. seq increases
	// by one with every Run. An error is always a *Failure.
	Run(ctx context.Context, seq uint64, calls []Call) error

	// Post announces messages without blocking. Messages between two ranks
	// with one tag are matched in the order in which they were posted.
	Post(msgs ...*Message)
	// Finish waits until a posted message has been delivered. It may be
	// called by one goroutine per message. An error is a *Failure, or an
	// *Unreceived if the group is healthy.
	Finish(ctx context.Context, m *Message) error

	// Sub returns this rank's engine of a new group that consists of the given
	// ranks of this one, in that order. All members call it with the same
	// arguments, right after operation seq, in which they learned the members.
	// It returns when all members have called it. If that fails, this group
	// has failed. See Form.
	Sub(ctx context.Context, seq uint64, members []int) (Engine, error)

	// Alloc returns zeroed memory that every rank of this host can see. All
	// ranks call it together.
	Alloc(ctx context.Context, seq uint64, bytes int) (*Region, error)

	// SameHost returns, for each rank, the lowest rank on its host.
	SameHost() []int
	// Describe returns how the engine moves data. It may be called concurrently.
	Describe() Description

	// Fail ends the group with f, unless it has failed already. It may be
	// called concurrently. It waits for no operation. It may wait for a short
	// time to find out whether another rank has failed first.
	Fail(f *Failure)
	// Failure returns the first failure, or nil if the group has not failed.
	Failure() *Failure
	// Failed is closed when the group has failed.
	Failed() <-chan struct{}

	// Close notifies the other ranks that this rank makes no more calls. Their
	// calls that need this rank fail. Its complete operations stay valid.
	Close() error
}

// A Hosted engine waits in a wait.Scheduler, such as a simulator. All code that uses
// the engine must wait there, too.
type Hosted interface {
	Engine
	// Host returns the scheduler.
	Host() wait.Scheduler
}

// A Roster reports which ranks have left a process's job. Its methods may be called
// concurrently.
type Roster interface {
	// Lost returns the ranks that are known to be lost.
	Lost() []int
	// Left returns the ranks that are known to have closed their engines.
	Left() []int
	// Hasten makes the process leave the job at once, without waiting for the others.
	Hasten()
}

// An AbsentError means that processes could not form a group because some ranks did
// not connect in time.
type AbsentError struct {
	Ranks []int // the ranks that are known to be missing
	Err   error // describes the failure
}

func (e *AbsentError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *AbsentError) Unwrap() error { return e.Err }

// A Region is memory that every rank of a host can see.
type Region struct {
	Ptr    unsafe.Pointer
	Bytes  int
	Mapped bool // a mapping of its own; false: part of Go's heap
	// Free releases the memory. The caller calls it once, when no rank uses
	// the memory any more.
	Free func() error
}

// NewRegion returns zeroed memory of this process, which the garbage collector frees.
func NewRegion(bytes int) *Region {
	mem := make([]uint64, (bytes+7)/8)
	return &Region{Ptr: unsafe.Pointer(unsafe.SliceData(mem)), Bytes: bytes, Free: func() error { return nil }}
}
