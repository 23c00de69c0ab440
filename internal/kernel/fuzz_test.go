package kernel

import (
	"testing"
	"unsafe"
)

// FuzzReduce compares every path with the reference. The first half of the data is a, the
// other half b.
func FuzzReduce(f *testing.F) {
	for dt := Int8; dt.Valid(); dt++ {
		op := Max
		if Xor.Takes(dt) {
			op = Xor
		}
		f.Add(uint8(dt), uint8(op), 0.5, []byte("0123456789abcdef\x00\x00\xc0\x7f\x00\x00\x80\xff\x00\x00\x00\x80\x01\x00\x00\x00"))
	}
	f.Fuzz(func(t *testing.T, dt8, op8 uint8, x float64, data []byte) {
		dt, op := DType(dt8), Op(op8)
		n := len(data) / 16 * 8 / max(dt.Size(), 1)
		if !op.Takes(dt) || n == 0 {
			t.Skip()
		}
		words := make([]uint64, 3*(n*dt.Size()/8)) // aligned for every type
		room := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
		part := len(room) / 3
		dst, a, b := room[:part], room[part:2*part], room[2*part:]
		copy(room[part:], data)
		forEachPath(t, func(t *testing.T) {
			Reduce(unsafe.Pointer(&dst[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), n, dt, op)
			for i := range n {
				u, v := getBits(a, dt, i), getBits(b, dt, i)
				if got, want := getBits(dst, dt, i), refReduce(dt, op, u, v); got != want {
					t.Errorf("%v of %v %#x and %#x: got %#x, want %#x", op, dt, u, v, got, want)
				}
			}
			ScaleAdd(unsafe.Pointer(&dst[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), n, dt, x)
			for i := range n {
				u, v := getBits(a, dt, i), getBits(b, dt, i)
				if got, want := getBits(dst, dt, i), refScaleAdd(dt, u, v, x); got != want {
					t.Errorf("%#x + %#x*%v of %v: got %#x, want %#x", u, v, x, dt, got, want)
				}
			}
		})
	})
}
