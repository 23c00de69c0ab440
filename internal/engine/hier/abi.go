package hier

import "github.com/tutti-go/tutti/internal/abi"

// ABI describes what ranks must have in common: how much of a vector is on its
// way at a time. Package engine describes how steps show the call that they are of.
func ABI() string { return abi.Text("hier", "segment", defaultSegment) }
