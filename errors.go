package tutti

import (
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// The kinds of error, for errors.Is.
var (
	ErrInvalid      = engine.ErrInvalid      // the arguments are wrong; the call has no effect
	ErrMismatch     = engine.ErrMismatch     // ranks made different calls, or joined with different options
	ErrTimeout      = engine.ErrTimeout      // a deadline passed
	ErrRankLost     = engine.ErrRankLost     // a rank has exited or closed the Comm, or its host does not answer
	ErrAborted      = engine.ErrAborted      // a context was cancelled, a device or connection failed, or Join failed
	ErrClosed       = engine.ErrClosed       // this rank has closed the Comm, or Shrink or Grow has replaced it
	ErrExcluded     = engine.ErrExcluded     // the other ranks have continued without this rank
	ErrCorrupt      = engine.ErrCorrupt      // data was damaged; see Config.Verify
	ErrUnsupported  = engine.ErrUnsupported  // the engine does not support the operation
	ErrNoDevicePath = engine.ErrNoDevicePath // device memory on a Comm without a device
	ErrRevoked      = engine.ErrRevoked      // a rank has called Shrink or Abort
)

// CanShrink reports whether the ranks can continue after err by Shrink. It is true if err
// is the failure of a Comm because ranks were lost or have closed it, because an
// operation timed out, because a rank has called Shrink or Abort, or because another
// rank's operation was ended by its context or its device. It is false for all other
// errors: errors of Join, Close and Shrink, errors of refused calls, the end of this rank's
// own context, and failures that would occur again, such as calls that differ and messages
// that wait for each other in a cycle.
func CanShrink(err error) bool {
	c := (*cause)(nil)
	if !errors.As(err, &c) || c.failure == nil || c.closed {
		return false
	}
	switch {
	case errors.Is(c.kind, ErrRankLost), errors.Is(c.kind, ErrRevoked):
		return true
	case errors.Is(c.kind, ErrTimeout):
		return c.failure.Event != engine.WaitCycle
	case errors.Is(c.kind, ErrAborted):
		return !c.here
	}
	return false
}

// An Error describes a failure and the rank where it began. All ranks of a poisoned
// Comm report the same first cause. Only on the rank whose own context ended does
// the Error also match that context's error.
type Error struct {
	Op    string // the operation, e.g. "AllReduce"; "": none; see Rank
	Seq   uint64 // number of the operation on the Comm, counted from 1; zero: it did not start
	Rank  int    // the rank where the failure began; of a loss in Op: the rank that was in Op; -1: a new process
	Lost  []int  // the lost ranks; see ErrRankLost
	Cause error  // the reason; it matches one of the kinds above
}

// Error returns one sentence: the operation, the rank and the reason.
func (e *Error) Error() string {
	return "tutti: " + engine.Sentence(e.Op, e.Seq, e.Rank, e.Cause.Error())
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// A cause is the Cause of an Error.
type cause struct {
	kind    error           // one of the kinds above
	reason  string          // for people
	own     error           // the error on this rank itself; nil: none
	failure *engine.Failure // the group's failure; nil: only this rank's call was refused
	here    bool            // the failure began on this rank
	closed  bool            // it is the error of Close, after which there is no Shrink
}

func (c *cause) Error() string { return c.kind.Error() + ": " + c.reason }

// Unwrap returns the kind, the error on this rank itself, and the group's failure. The type of the failure is
// internal: packages of this module read its facts, such as the ranks that it waited for, by errors.As.
func (c *cause) Unwrap() []error {
	list := []error{c.kind}
	if c.own != nil {
		list = append(list, c.own)
	}
	if c.failure != nil {
		list = append(list, c.failure)
	}
	return list
}

// errOver is the cause of errors of calls on a closed Comm.
var errOver = &cause{kind: ErrClosed, reason: "this rank has closed the Comm, and can call nothing more on it"}

// errReplaced is the cause of errors of calls on a Comm that has a successor.
var errReplaced = &cause{kind: ErrClosed, reason: "Shrink or Grow has replaced this Comm; use the Comm that it returned"}

// publicError returns the public form of a group's failure, for one of its ranks, and its Cause.
func publicError(f *engine.Failure, rank int) (*Error, *cause) {
	c := &cause{kind: f.Kind, reason: f.Reason(), failure: f, here: f.Rank == rank}
	if c.here {
		c.own = f.Err
	}
	return &Error{Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Cause: c}, c
}

// closeError is publicError for the error of Close.
func closeError(f *engine.Failure, rank int) *Error {
	e, c := publicError(f, rank)
	c.reason, c.closed = f.ReasonOfClose(), true
	if f.Op == "" {
		e.Op, e.Rank = "Close", rank
	}
	return e
}
