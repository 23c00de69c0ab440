package enginetest

import (
	"fmt"
	"math"

	"github.com/tutti-go/tutti/internal/kernel"
)

// show formats an element for an error: its bits and its value.
func show(bits uint64, t kernel.DType) string {
	var v any
	switch t {
	case kernel.Int8:
		v = int8(bits)
	case kernel.Int16:
		v = int16(bits)
	case kernel.Int32:
		v = int32(bits)
	case kernel.Int64:
		v = int64(bits)
	case kernel.Float16:
		v = kernel.Float16ToFloat32(uint16(bits))
	case kernel.BFloat16:
		v = kernel.BFloat16ToFloat32(uint16(bits))
	case kernel.Float32:
		v = math.Float32frombits(uint32(bits))
	case kernel.Float64:
		v = math.Float64frombits(bits)
	default:
		v = bits
	}
	return fmt.Sprintf("%#0*x (%v)", 2*t.Size(), bits, v)
}
