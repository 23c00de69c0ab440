package kernel

import "github.com/tutti-go/tutti/internal/abi"

// ABI describes what ranks must have in common: the numbers of types and
// reductions, which travel in fingerprints, and the bits of NaN.
func ABI() string {
	return abi.Text("kernel", "dtypes", dtypes, "note", uint8(Note), "value", uint8(Value), "ops", opNames,
		"nan", []uint64{nanFloat16, nanBFloat16, nanFloat32, nanFloat64})
}
