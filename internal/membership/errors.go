package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/store"
)

// An Error is why a rank has no membership: a kind of package engine, and the reason.
type Error struct {
	Kind   error
	Reason string
	Err    error // what this rank itself saw; nil: nothing else
}

func (e *Error) Error() string { return e.Kind.Error() + ": " + e.Reason }

// Unwrap returns the kind, and what this rank itself saw.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// An attachError is an error of Config.Attach. The text and the kind are final.
type attachError struct{ error }

func (e attachError) Unwrap() error { return e.error }

// final reports whether an error has its kind and its whole text already.
func final(err error) bool {
	return errors.As(err, new(*Error)) || errors.As(err, new(attachError))
}

// Undecided returns the error of a call that got no answer from the store, or could not
// form what was decided. ctx is that of the call.
func Undecided(ctx context.Context, err error) *Error {
	kind := engine.ErrAborted
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = engine.ErrTimeout
	}
	return &Error{Kind: kind, Reason: "the ranks could not agree: " + Text(err), Err: err}
}

// excluded returns the error of a rank that is not among the members of a decision.
func excluded(d *agree.Decision) *Error {
	return &Error{Kind: engine.ErrExcluded, Reason: fmt.Sprintf(
		"the other ranks (%s of the old Comm) continue without this rank, which was considered lost or called too late; "+
			"raise Config.ShrinkTimeout if it is slow, or start it again with Config.Late", engine.Ranks(d.Members))}
}

// Text returns the text of an error without the calls of the store and their keys, which mean nothing to users.
func Text(err error) string {
	text := err.Error()
	if e := (*store.Error)(nil); errors.As(err, &e) {
		text = strings.Replace(text, e.Error(), storeText(e), 1)
	}
	return text
}

// storeText returns why a call of the store has failed.
func storeText(e *store.Error) string {
	if !errors.Is(e.Cause, store.ErrLost) {
		for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
			if errors.Is(e.Cause, ended) {
				return ended.Error()
			}
		}
	}
	if e.Addr == "" {
		return e.Cause.Error()
	}
	return fmt.Sprintf("the store at %s: %v", e.Addr, e.Cause)
}

// joinError returns the error of Join, with its kind and with what to do.
func joinError(ctx context.Context, err error) error {
	switch {
	case final(err):
		return err
	case errors.Is(err, engine.ErrMismatch):
		return &Error{Kind: engine.ErrMismatch, Reason: Text(err), Err: err}
	case ctx.Err() == context.DeadlineExceeded:
		return &Error{Kind: engine.ErrTimeout, Reason: Text(err) + advice(err), Err: err}
	}
	return &Error{Kind: engine.ErrAborted, Reason: Text(err) + advice(err), Err: err}
}

// advice returns what to do about a network error. It returns "" for an error of the store client,
// whose text already contains advice, and for all other errors.
func advice(err error) string {
	unknownHost, storeErr := (*net.DNSError)(nil), (*store.Error)(nil)
	switch {
	case errors.As(err, &storeErr):
		return ""
	case errors.Is(err, syscall.EADDRINUSE):
		return "; end the process that has the port, or give all ranks another address"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "; the address must be one of rank 0's host"
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &unknownHost):
		return "; is rank 0 running, and is that its address?"
	case errors.Is(err, context.DeadlineExceeded):
		return "; have all ranks been started?"
	}
	return ""
}
