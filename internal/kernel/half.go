package kernel

import "math"

// The canonical quiet NaNs: the only NaNs that the package produces.
const (
	nanFloat16  = 0x7E00
	nanBFloat16 = 0x7FC0
	nanFloat32  = 0x7FC00000
	nanFloat64  = 0x7FF8000000000000
)

// Float16ToFloat32 converts from IEEE 754 binary16. The conversion is exact;
// every NaN becomes the canonical one.
func Float16ToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	magnitude := uint32(h & 0x7FFF)
	switch {
	case magnitude > 0x7C00:
		return math.Float32frombits(nanFloat32)
	case magnitude == 0x7C00:
		return math.Float32frombits(sign | 0x7F800000)
	case magnitude < 0x0400:
		subnormal := float32(magnitude) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(subnormal))
	default:
		// Same layout, wider fields: move the bits and rebias the exponent.
		return math.Float32frombits(sign | (magnitude<<13 + (127-15)<<23))
	}
}

// Float32ToFloat16 converts to IEEE 754 binary16, rounding to nearest, ties to
// even. Magnitudes of 65520 and more become infinite; every NaN becomes the
// canonical one.
func Float32ToFloat16(f float32) uint16 {
	u := math.Float32bits(f)
	sign := uint16(u>>16) & 0x8000
	u &= 0x7FFFFFFF
	switch {
	case u > 0x7F800000:
		return nanFloat16
	case u >= 0x477FF000: // 65520, half way between the largest value and 2^16
		return sign | 0x7C00
	case u < 0x38800000: // below 2^-14, the smallest normal value
		// The float32 values from 0.5 to 1 have the spacing of the subnormal float16 values, so
		// this addition rounds as the conversion must.
		sum := math.Float32frombits(u) + 0.5
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(0.5))
	default:
		u += 0x0FFF + u>>13&1
		return sign | uint16((u-(127-15)<<23)>>13)
	}
}

// BFloat16ToFloat32 converts from bfloat16, the upper half of a float32. The
// conversion is exact; every NaN becomes the canonical one.
func BFloat16ToFloat32(h uint16) float32 {
	if h&0x7FFF > 0x7F80 {
		return math.Float32frombits(nanFloat32)
	}
	return math.Float32frombits(uint32(h) << 16)
}

// Float32ToBFloat16 converts to bfloat16, rounding to nearest, ties to even.
// Values beyond the largest bfloat16 round to infinity; every NaN becomes the
// canonical one.
func Float32ToBFloat16(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7FFFFFFF > 0x7F800000 {
		return nanBFloat16
	}
	return uint16((u + 0x7FFF + u>>16&1) >> 16)
}
