package hier

import "github.com/tutti-go/tutti/internal/abi"

// ABI describes the constants that must be equal on all ranks: the segment size. Package
// engine describes how the fingerprint of a step identifies its call.
func ABI() string { return abi.Text("hier", "segment", defaultSegment) }
