package gpu

import "github.com/tutti-go/tutti/internal/abi"

// ABI describes what ranks with a device must have in common: what they tell each
// other of their next operations, and how those are divided that go through host
// memory.
func ABI() string {
	return abi.Text("gpu",
		"marks", marks, "reach", reach, "apart", apart,
		"tags", []int{idTag, replyTag(1), verdictTag(1)}, "note", []int{noteType, noteCount, noteNumber, noteWords},
		"stage", []int{slots, slotBytes, leastLoad, steps, line},
	)
}
