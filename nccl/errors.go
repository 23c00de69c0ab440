package nccl

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// Kinds of error, for errors.Is.
var (
	ErrInvalid = errors.New("invalid argument")                  // NCCL was not called
	ErrClosed  = errors.New("the communicator has been closed")  // by Close
	ErrAborted = errors.New("the communicator has been aborted") // by Abort
	ErrRevoked = errors.New("the communicator has been revoked") // by Revoke, or Shrink after an error
	ErrBusy    = errors.New("a call on it has not returned yet") // Abort came too early
	ErrRemote  = errors.New("another rank is gone")              // result code 6
	ErrStarted = errors.New("the context ended before NCCL did") // with the context's error
)

// An Error is a result of NCCL other than success.
type Error struct {
	Func string // NCCL's function, such as ncclAllReduce
	Code int    // its result
	Text string // what the code means
	Last string // NCCL's words about the last error in this process, if any
}

// Error says which call failed, and how.
func (e *Error) Error() string {
	return "nccl: " + (&ncclsys.Error{Func: e.Func, Code: e.Code, Text: e.Text, Last: e.Last}).Error()
}

// Is reports whether the error is of a kind: ErrRemote is.
func (e *Error) Is(kind error) bool { return kind == ErrRemote && e.Code == 6 }

// public turns an error of the raw layer into one of this package's, or of
// package cuda's where a library or a function is missing.
func public(err error) error {
	if err == nil {
		return nil
	}
	var e *ncclsys.Error
	if errors.As(err, &e) {
		return &Error{Func: e.Func, Code: e.Code, Text: e.Text, Last: e.Last}
	}
	return cuda.FromLoader(err)
}

// unlessGone leaves out that a communicator has ended: what was made for it has, too.
func unlessGone(err error) error {
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrAborted) || errors.Is(err, ErrRevoked) {
		return nil
	}
	return err
}

// invalid is an ErrInvalid with its reason.
func invalid(format string, args ...any) error {
	return fmt.Errorf("nccl: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
