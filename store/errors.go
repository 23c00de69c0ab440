package store

import (
	"errors"
	"fmt"
)

// The kinds of error, for errors.Is. An error caused by a context matches the
// context's error too.
var (
	ErrInvalid = errors.New("invalid configuration")                        // the Config or a server's address is not usable; nothing was done
	ErrRefused = errors.New("the store refused")                            // the server does not admit this client
	ErrLost    = errors.New("the connection was lost")                      // during a call, or the server cannot be reached
	ErrLimit   = errors.New("a limit of the store")                         // a key, a value or their number exceeds a limit
	ErrNumber  = errors.New("the value is not a number")                    // Add or Barrier on a key with another value
	ErrEmpty   = errors.New("the queue is empty")                           // from TryPop
	ErrAnswer  = errors.New("the peer does not speak the store's protocol") // the peer does not speak this protocol
	ErrClosed  = errors.New("the store is closed")                          // this side has called Close
)

// An Error is a failed call. Cause matches one of the errors above, or a context's
// error.
type Error struct {
	Op    string // the method, for example "Get"
	Key   string // the first key; "" if the call has none
	Addr  string // the server's address; "" in memory
	Cause error  // never nil
}

// Error returns one sentence.
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

// A kindError is one of the errors above with a reason.
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

// shorten cuts long keys, for error messages and logs.
func shorten(key string) string {
	const most = 80
	if len(key) > most {
		return key[:most] + "..."
	}
	return key
}
