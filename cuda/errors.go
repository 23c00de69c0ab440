package cuda

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/cudasys"
	"github.com/tutti-go/tutti/internal/dl"
)

// The kinds of error, for errors.Is.
var (
	ErrInvalid = errors.New("invalid argument")          // CUDA was not called
	ErrFreed   = errors.New("the memory has been freed") // by Free or FreeOn
	ErrClosed  = errors.New("it is closed")              // a Device, Stream, Event or Pool
)

// An Error is a result of the CUDA driver other than CUDA_SUCCESS.
type Error struct {
	Func string // the driver's function, such as cuMemAlloc_v2
	Code int    // the CUresult
	Name string // the result's name, such as CUDA_ERROR_OUT_OF_MEMORY; "" if unknown
	Text string // the driver's description of the result
}

// Error names the function that failed and the result.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("cuda: %s failed with the unknown code %d", e.Func, e.Code)
	}
	return fmt.Sprintf("cuda: %s failed: %s (%s, %d)", e.Func, e.Text, e.Name, e.Code)
}

// A LibraryError reports a shared library that could not be loaded.
type LibraryError struct {
	Library string         // the library's name
	Tried   []LibraryTried // every candidate, in order
	Hint    string         // what the user can do
}

// LibraryTried is one candidate, and the reason why it could not be loaded.
type LibraryTried struct{ Path, Reason string }

// Error lists every path that was tried, and the hint.
func (e *LibraryError) Error() string { return e.loader().Error() }

func (e *LibraryError) loader() *dl.NotFoundError {
	nf := &dl.NotFoundError{Library: e.Library, Hint: e.Hint}
	for _, t := range e.Tried {
		nf.Tried = append(nf.Tried, dl.Attempt(t))
	}
	return nf
}

// A VersionError reports that a library is too old for a call.
type VersionError struct {
	Library string // such as "NCCL"
	Func    string // the missing function
	Need    string // the first version that has it; "" if not known
	Found   string // the version that is loaded
}

// Error names both versions.
func (e *VersionError) Error() string {
	return (&dl.MissingError{Library: e.Library, Symbol: e.Func, Need: e.Need, Found: e.Found}).Error()
}

// FromLoader converts the internal errors of loading a library to LibraryError and
// VersionError, and returns any other error as it is. It is for packages of this
// module.
func FromLoader(err error) error {
	var nf *dl.NotFoundError
	if errors.As(err, &nf) {
		e := &LibraryError{Library: nf.Library, Hint: nf.Hint}
		for _, t := range nf.Tried {
			e.Tried = append(e.Tried, LibraryTried(t))
		}
		return e
	}
	var m *dl.MissingError
	if errors.As(err, &m) {
		return &VersionError{Library: m.Library, Func: m.Symbol, Need: m.Need, Found: m.Found}
	}
	return err
}

// public converts an error of the raw layer to one of this package's.
func public(err error) error {
	if err == nil {
		return nil
	}
	var e *cudasys.Error
	if errors.As(err, &e) {
		return &Error{Func: e.Func, Code: e.Code, Name: e.Name, Text: e.Text}
	}
	return FromLoader(err)
}

// invalid returns an ErrInvalid with its reason.
func invalid(format string, args ...any) error {
	return fmt.Errorf("cuda: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// ended returns an ErrClosed or ErrFreed with its subject.
func ended(what string, kind error) error { return fmt.Errorf("cuda: %s: %w", what, kind) }
