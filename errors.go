package tutti

import "github.com/tutti-go/tutti/internal/engine"

// The kinds of error, for errors.Is.
var (
	ErrInvalid      = engine.ErrInvalid      // the arguments are wrong; nothing has happened
	ErrMismatch     = engine.ErrMismatch     // ranks called different things, or joined with different options
	ErrTimeout      = engine.ErrTimeout      // a deadline passed
	ErrRankLost     = engine.ErrRankLost     // a rank is gone
	ErrAborted      = engine.ErrAborted      // a context was cancelled, Abort was called, or Join failed
	ErrClosed       = engine.ErrClosed       // this rank has closed the Comm
	ErrExcluded     = engine.ErrExcluded     // the others have gone on without this rank
	ErrCorrupt      = engine.ErrCorrupt      // data was damaged; see Config.Verify
	ErrUnsupported  = engine.ErrUnsupported  // the engine cannot do that
	ErrNoDevicePath = engine.ErrNoDevicePath // device memory on a Comm without a device
)

// An Error says what went wrong, and where it began. All ranks of a poisoned
// Comm have the same first cause; only the rank whose own context ended also
// matches that context's error.
type Error struct {
	Op    string // the operation, e.g. "AllReduce"; "" if it was none
	Seq   uint64 // its number on the Comm, from 1; 0 if it never started
	Rank  int    // the rank where it began
	Lost  []int  // the ranks that are gone
	Cause error  // what happened; it matches one of the kinds above
}

// Error is one sentence that says who did what.
func (e *Error) Error() string {
	return "tutti: " + engine.Sentence(e.Op, e.Seq, e.Rank, e.Cause.Error())
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// cause is a kind of error, what happened in words, and what this rank itself
// saw.
type cause struct {
	kind   error
	reason string
	own    error
}

func (c *cause) Error() string { return c.kind.Error() + ": " + c.reason }

func (c *cause) Unwrap() []error {
	if c.own == nil {
		return []error{c.kind}
	}
	return []error{c.kind, c.own}
}

// errOver is why a Comm that this rank has closed starts nothing more.
var errOver = &cause{kind: ErrClosed, reason: "this rank has closed the Comm, and can call nothing more on it"}

// publicError is a group's failure as one of its ranks reports it.
func publicError(f *engine.Failure, rank int) *Error {
	c := &cause{kind: f.Kind, reason: f.Reason()}
	if f.Rank == rank {
		c.own = f.Err
	}
	return &Error{Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Cause: c}
}
