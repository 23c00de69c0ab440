package store

import (
	"errors"
	"fmt"
)

// The kinds of error, for errors.Is. A context's own error is matched too.
var (
	ErrInvalid = errors.New("invalid configuration")     // the Config, or the address of a server, cannot be used; nothing has happened
	ErrRefused = errors.New("the store refused")         // it does not let this client in
	ErrLost    = errors.New("the connection was lost")   // in the middle of a call, or the store cannot be reached
	ErrLimit   = errors.New("a limit of the store")      // a key, a value or their number is too large
	ErrNumber  = errors.New("the value is not a number") // Add or Barrier on a key with something else
	ErrEmpty   = errors.New("the queue is empty")        // TryPop
	ErrAnswer  = errors.New("an answer makes no sense")  // the other side does not speak this protocol
	ErrClosed  = errors.New("the store is closed")       // by this side
)

// An Error is a call that failed. Cause matches one of the kinds above, or a
// context's error.
type Error struct {
	Op    string // the method, e.g. "Get"
	Key   string // the first key, if there is one
	Addr  string // where the store is; "" in memory
	Cause error
}

// Error is one sentence.
func (e *Error) Error() string {
	text := "store: " + e.Op
	if e.Key != "" {
		text += fmt.Sprintf(" %q", shorten(e.Key))
	}
	if e.Addr != "" {
		text += " at " + e.Addr
	}
	return text + ": " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// kindError is one of the kinds, with what happened in words.
type kindError struct {
	kind   error
	reason string
	cause  error // may be nil
}

func (k *kindError) Error() string { return k.kind.Error() + ": " + k.reason }

func (k *kindError) Unwrap() []error {
	if k.cause == nil {
		return []error{k.kind}
	}
	return []error{k.kind, k.cause}
}

func kindf(kind error, format string, args ...any) error {
	return &kindError{kind: kind, reason: fmt.Sprintf(format, args...)}
}

// shorten keeps long keys out of error messages and logs.
func shorten(key string) string {
	const most = 80
	if len(key) > most {
		return key[:most] + "..."
	}
	return key
}
