package control

import (
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Version is what a rank runs, as far as other ranks rely on it. It travels in
// the challenge and in the hello; docs/design/security.md has their encoding, which never
// changes.
type Version struct {
	// Protocol is a number that is raised when ranks behave in another way.
	Protocol int `json:"protocol"`
	// ABI is a hash of all constants, tables and layouts that ranks rely on.
	ABI string `json:"abi"`
	// Release is the version of the module in the program; "": not known.
	Release string `json:"release,omitempty"`
}

// String is the version in words. A nil Version is that of a rank that does not
// tell its own.
func (v *Version) String() string {
	switch {
	case v == nil:
		return "an earlier version of tutti (protocol 1)"
	case v.Release == "":
		return fmt.Sprintf("tutti (protocol %d, ABI %s)", v.Protocol, v.ABI)
	}
	return fmt.Sprintf("tutti %s (protocol %d, ABI %s)", v.Release, v.Protocol, v.ABI)
}

// fits reports whether ranks of two versions understand each other. Releases
// are compared where both are known: code may differ where no constant does.
func (v *Version) fits(o *Version) bool {
	return v != nil && o != nil && v.Protocol == o.Protocol && v.ABI == o.ABI &&
		(v.Release == o.Release || v.Release == "" || o.Release == "")
}

// versionsDiffer is the sentence of both sides about a rank whose version is not
// that of rank 0.
func versionsDiffer(rank int, theirs, root *Version) string {
	return fmt.Sprintf("rank %d runs %v, and rank 0 runs %v; build all ranks with the same version of tutti", rank, theirs, root)
}

// A mismatchError says that ranks cannot form a job because they are not alike:
// of another version, or one encrypts and rank 0 does not. It is the same sentence
// on all ranks that it concerns.
type mismatchError string

func (e mismatchError) Error() string { return string(e) }

// Is reports whether target is engine.ErrMismatch.
func (e mismatchError) Is(target error) bool { return target == engine.ErrMismatch }
