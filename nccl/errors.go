package nccl

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// The kinds of error, for errors.Is.
var (
	ErrInvalid = errors.New("invalid argument")                                // NCCL was not called
	ErrClosed  = errors.New("the communicator has been closed")                // by Close
	ErrAborted = errors.New("the communicator has been aborted")               // by Abort
	ErrRevoked = errors.New("the communicator has been revoked")               // by Revoke, or by Shrink with end
	ErrBusy    = errors.New("a call on the communicator has not returned yet") // from Abort: its context ended first
	ErrRemote  = errors.New("another rank has exited or cannot be reached")    // ncclRemoteError, code 6
	ErrStarted = errors.New("the context ended before NCCL's call did")        // comes with the context's error
)

// An Error is a result of NCCL other than ncclSuccess.
type Error struct {
	Func string // NCCL's function, such as ncclAllReduce
	Code int    // the ncclResult_t
	Text string // the meaning of the code
	Last string // ncclGetLastError: NCCL's last error in this process; may be ""
}

// Error names the function that failed and the result.
func (e *Error) Error() string {
	return "nccl: " + (&ncclsys.Error{Func: e.Func, Code: e.Code, Text: e.Text, Last: e.Last}).Error()
}

// Is reports whether the error matches ErrRemote.
func (e *Error) Is(kind error) bool { return kind == ErrRemote && e.Code == 6 }

// public converts an error of the raw layer to one of this package's. An error about a
// missing library or function becomes one of package cuda's.
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

// ignoreEnded returns nil if the communicator has ended: its objects have ended with it.
func ignoreEnded(err error) error {
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrAborted) || errors.Is(err, ErrRevoked) {
		return nil
	}
	return err
}

// invalid returns an ErrInvalid with its reason.
func invalid(format string, args ...any) error {
	return fmt.Errorf("nccl: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
