package hier

import (
	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// ABI describes what ranks must have in common: how much of a vector is on its
// way at a time, and how steps are named.
func ABI() string {
	sample := engine.Sig{Verb: engine.AllReduce, Type: kernel.Float32, Red: engine.Sum, Root: 36, Count: 1296, Name: 1}
	return abi.Text("hier", "segment", defaultSegment, "base", base, "label", newLabel(sample, "name"))
}
