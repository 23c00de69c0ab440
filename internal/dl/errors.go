package dl

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnsupported reports that this system cannot load libraries.
var ErrUnsupported = errors.New("loading libraries needs linux on amd64 or arm64")

// An Attempt is one path that was tried, and the reason why it failed.
type Attempt struct {
	Path   string // a file, or a name that the loader searched for
	Reason string // the loader's message
}

// A NotFoundError reports that no candidate for a library could be opened.
type NotFoundError struct {
	Library string    // the library's name, such as "NCCL"
	Tried   []Attempt // every candidate, in order
	Hint    string    // what the user can do
}

// Error lists every path that was tried, and each reason once.
func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s was not found", e.Library)
	for i, a := range e.Tried {
		switch {
		case i == 0:
			b.WriteString(" (tried ")
		case a.Reason == e.Tried[i-1].Reason:
			b.WriteString(", ")
		default:
			fmt.Fprintf(&b, ": %s; ", e.Tried[i-1].Reason)
		}
		b.WriteString(a.Path)
	}
	if n := len(e.Tried); n > 0 {
		fmt.Fprintf(&b, ": %s)", e.Tried[n-1].Reason)
	}
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	return b.String()
}

// A MissingError reports that a library lacks a function, usually because it is too old.
type MissingError struct {
	Library string // such as "NCCL"
	Symbol  string // the function, or a setting
	Need    string // the first version that has it; "" if not known
	Found   string // the version that is loaded; "" if not known
}

// Error names the version that is needed and the version that is loaded.
func (e *MissingError) Error() string {
	if e.Need == "" {
		return fmt.Sprintf("%s %s has no %s", e.Library, e.Found, e.Symbol)
	}
	return fmt.Sprintf("%s needs %s %s, found %s", e.Symbol, e.Library, e.Need, e.Found)
}
