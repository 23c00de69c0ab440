package watch

import (
	"maps"
	"slices"

	"github.com/tutti-go/tutti/internal/abi"
)

// ABI describes what ranks must have in common once they have joined: the kinds of
// frames and of causes. What comes before that never changes.
func ABI() string {
	return abi.Text("watch",
		"kinds", []kind{challenge, hello, refused, welcome, put, all, failed, heard, at, ask, here, lost, beat, bye},
		"causes", slices.Sorted(maps.Keys(kinds)), "maxFrame", maxFrame, "keyBytes", keyBytes,
		"frame", abi.Struct[frame](), "cause", abi.Struct[Cause](),
	)
}
