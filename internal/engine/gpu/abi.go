package gpu

import "github.com/tutti-go/tutti/internal/abi"

// ABI describes the values that must be equal on all ranks with a device: the hashes of the
// operations that ranks compare, and the division of operations that go through host memory.
func ABI() string {
	return abi.Text("gpu",
		"digestWords", digestWords, "lookahead", lookahead, "prefixLengths", prefixLengths, "comparison", comparison,
		"tags", []int{idTag, replyTag(1), verdictTag(1)}, "note", []int{noteType, noteCount, noteNumber, noteWords},
		"stage", []int{slots, slotBytes, leastLoad, steps, line},
	)
}
