package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestHalfToFloat32(t *testing.T) {
	for h := range 1 << 16 {
		for _, half := range []struct {
			t    DType
			load func(uint16) float32
		}{{Float16, Float16ToFloat32}, {BFloat16, BFloat16ToFloat32}} {
			got := math.Float32bits(half.load(uint16(h)))
			want := uint32(refRound(Float32, refFloat(half.t, uint64(h))))
			if got != want {
				t.Errorf("%v %#04x: got %#08x, want %#08x", half.t, h, got, want)
			}
		}
	}
}

// TestHalfThereAndBack converts every value and returns. It also checks the neighbours of every
// value and of every tie between two values.
func TestHalfThereAndBack(t *testing.T) {
	for h := range 1 << 16 {
		x := refFloat(Float16, uint64(h))
		checkToHalf(t, float32(x))
		checkToHalf(t, math.Float32frombits(uint32(h)<<16))
		if uint16(h)&0x7FFF < 0x7C00 {
			next := refFloat(Float16, uint64(h+1))
			if math.IsInf(next, 0) {
				next = math.Copysign(0x1p16, x)
			}
			checkAround(t, float32((x+next)/2))
		}
		checkAround(t, math.Float32frombits(uint32(h)<<16|0x8000))
		if x == x {
			if got := Float32ToFloat16(Float16ToFloat32(uint16(h))); got != uint16(h) {
				t.Errorf("float16 %#04x comes back as %#04x", h, got)
			}
		}
		if h&0x7FFF <= 0x7F80 {
			if got := Float32ToBFloat16(BFloat16ToFloat32(uint16(h))); got != uint16(h) {
				t.Errorf("bfloat16 %#04x comes back as %#04x", h, got)
			}
		}
	}
}

func TestFloat32ToHalfRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1 << 20 {
		checkToHalf(t, math.Float32frombits(r.Uint32()))
	}
}

func checkAround(t *testing.T, x float32) {
	t.Helper()
	bits := math.Float32bits(x)
	for _, b := range []uint32{bits - 1, bits, bits + 1} {
		checkToHalf(t, math.Float32frombits(b))
	}
}

func checkToHalf(t *testing.T, x float32) {
	t.Helper()
	if got, want := Float32ToFloat16(x), uint16(refRound(Float16, float64(x))); got != want {
		t.Errorf("float16 of %#08x: got %#04x, want %#04x", math.Float32bits(x), got, want)
	}
	if got, want := Float32ToBFloat16(x), uint16(refRound(BFloat16, float64(x))); got != want {
		t.Errorf("bfloat16 of %#08x: got %#04x, want %#04x", math.Float32bits(x), got, want)
	}
}
