package value

import (
	"errors"

	"github.com/tutti-go/tutti"
)

// A cause is the Cause of an error.
type cause struct {
	kind error // of package tutti
	text string
	own  error // the error on this rank itself; nil: it is on another rank
}

func (c *cause) Error() string { return c.kind.Error() + ": " + c.text }

// Unwrap returns the kind and the error on this rank itself.
func (c *cause) Unwrap() []error {
	if c.own == nil {
		return []error{c.kind}
	}
	return []error{c.kind, c.own}
}

// fail returns the error of op that began on rank.
func fail(op string, rank int, kind error, text string) error {
	return &tutti.Error{Op: op, Rank: rank, Cause: &cause{kind: kind, text: text}}
}

// failOn returns the error of op on this rank, because of err.
func failOn(op string, rank int, err error) error {
	return &tutti.Error{Op: op, Rank: rank, Cause: &cause{kind: tutti.ErrInvalid, text: err.Error(), own: err}}
}

// errNotReturned is the error of a rank for the others while a panic passes through it.
var errNotReturned = errors.New("the caller's function has panicked or has ended its goroutine")

// anotherType stands for the name of a type in a text that has named another type of the same name.
const anotherType = "another type of that name"
