package control

import (
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Version is what other ranks rely on in this rank's program. It is part of the challenge and the
// hello. docs/design/security.md describes its encoding, which never changes.
type Version struct {
	// Protocol is raised when the behavior of ranks changes.
	Protocol int `json:"protocol"`
	// ABI is a hash of all constants, tables and layouts that ranks rely on.
	ABI string `json:"abi"`
	// Release is the module version of the program; "" if it is not known.
	Release string `json:"release,omitempty"`
}

// String describes the version for users. A nil Version means a rank of protocol 1, which sends no
// version.
func (v *Version) String() string {
	switch {
	case v == nil:
		return "an earlier version of tutti (protocol 1)"
	case v.Release == "":
		return fmt.Sprintf("tutti (protocol %d, ABI %s)", v.Protocol, v.ABI)
	}
	return fmt.Sprintf("tutti %s (protocol %d, ABI %s)", v.Release, v.Protocol, v.ABI)
}

// fits reports whether ranks of the two versions can work together. Releases are compared if both
// are known, because behavior may differ where no constant does.
func (v *Version) fits(o *Version) bool {
	return v != nil && o != nil && v.Protocol == o.Protocol && v.ABI == o.ABI &&
		(v.Release == o.Release || v.Release == "" || o.Release == "")
}

// versionMismatch returns the error text of all ranks if the version of a rank is not that of rank
// 0.
func versionMismatch(rank int, theirs, root *Version) string {
	return fmt.Sprintf("rank %d runs %v, and rank 0 runs %v; build all ranks with the same version of tutti", rank, theirs, root)
}

// A mismatchError says that the ranks cannot form a job: their versions differ, or only one side
// encrypts. All affected ranks return the same text.
type mismatchError string

func (e mismatchError) Error() string { return string(e) }

// Is reports whether target is engine.ErrMismatch.
func (e mismatchError) Is(target error) bool { return target == engine.ErrMismatch }
