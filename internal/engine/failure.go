package engine

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure.
var (
	ErrRankLost     = errors.New("a rank was lost")
	ErrTimeout      = errors.New("timed out")
	ErrMismatch     = errors.New("ranks disagree")
	ErrAborted      = errors.New("aborted")
	ErrClosed       = errors.New("closed")
	ErrInvalid      = errors.New("invalid argument")
	ErrUnsupported  = errors.New("not supported")
	ErrCorrupt      = errors.New("data was damaged")
	ErrExcluded     = errors.New("left behind")
	ErrNoDevicePath = errors.New("no path for device memory")
)

// A Failure is why a group has ended. It is made once, where the trouble
// began, and not changed afterwards.
type Failure struct {
	Kind   error  // one of the kinds above
	Op     string // the operation in which it began, "" for none
	Seq    uint64 // its number
	Rank   int    // where it began
	Lost   []int  // the ranks that are gone
	Left   bool   // they have closed the group, and may be well
	Above  []int  // ranks that are gone of the group that this one was being made of, in its numbers
	Reason string // what happened and what to do, for a person
	Told   bool   // the other ranks know of it
	Err    error  // what Rank itself saw, e.g. its context's error; other ranks do not match it
}

func (f *Failure) Error() string {
	var b strings.Builder
	if f.Op != "" {
		fmt.Fprintf(&b, "%s#%d on rank %d: ", f.Op, f.Seq, f.Rank)
	}
	fmt.Fprintf(&b, "%v: %s", f.Kind, f.Reason)
	return b.String()
}

// Unwrap returns the kind.
func (f *Failure) Unwrap() error { return f.Kind }

// Ranks writes a list of ranks for an error: "rank 3", "ranks 0, 2 and 5".
func Ranks(list []int) string {
	switch len(list) {
	case 0:
		return "no rank"
	case 1:
		return fmt.Sprintf("rank %d", list[0])
	}
	const most = 16
	var b strings.Builder
	b.WriteString("ranks ")
	for i, r := range list {
		switch {
		case i == most:
			fmt.Fprintf(&b, " and %d more", len(list)-most)
			return b.String()
		case i == 0:
		case i == len(list)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d", r)
	}
	return b.String()
}
