package kernel

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/race"
)

// pieceBytes is the number of destination bytes between two preemption points.
const pieceBytes = 64 << 10

// Reduce sets dst[i] = a[i] op b[i] for n elements of type t.
func Reduce(dst, a, b unsafe.Pointer, n int, t DType, op Op) {
	f, size := active().reduce[t][op], dtypes[t].size
	if n*size > pieceBytes {
		for step := pieceBytes / size; n > step; n -= step {
			reducePiece(f, dst, a, b, step, size)
			dst, a, b = unsafe.Add(dst, pieceBytes), unsafe.Add(a, pieceBytes), unsafe.Add(b, pieceBytes)
		}
	}
	reducePiece(f, dst, a, b, n, size)
}

// Scale sets dst[i] = a[i]*x for n elements of type t.
func Scale(dst, a unsafe.Pointer, n int, t DType, x float64) {
	f, size := active().scale[t], dtypes[t].size
	if n*size > pieceBytes {
		for step := pieceBytes / size; n > step; n -= step {
			scalePiece(f, dst, a, step, size, x)
			dst, a = unsafe.Add(dst, pieceBytes), unsafe.Add(a, pieceBytes)
		}
	}
	scalePiece(f, dst, a, n, size, x)
}

// ScaleAdd sets dst[i] = a[i] + b[i]*x for n elements of type t. The product
// is rounded before it is added.
func ScaleAdd(dst, a, b unsafe.Pointer, n int, t DType, x float64) {
	f, size := active().scaleAdd[t], dtypes[t].size
	if n*size > pieceBytes {
		for step := pieceBytes / size; n > step; n -= step {
			scaleAddPiece(f, dst, a, b, step, size, x)
			dst, a, b = unsafe.Add(dst, pieceBytes), unsafe.Add(a, pieceBytes), unsafe.Add(b, pieceBytes)
		}
	}
	scaleAddPiece(f, dst, a, b, n, size, x)
}

// Copy moves bytes from src to dst.
func Copy(dst, src unsafe.Pointer, bytes int) {
	for ; bytes > pieceBytes; bytes -= pieceBytes {
		copyPiece(dst, src, pieceBytes)
		dst, src = unsafe.Add(dst, pieceBytes), unsafe.Add(src, pieceBytes)
	}
	copyPiece(dst, src, bytes)
}

// Path returns the name of the implementation in use: "generic", "avx2" or
// "neon".
func Path() string { return active().path }

// The pieces are functions that are not inlined: the stack check at their start is the
// preemption point.

//go:noinline
func reducePiece(f reduceFunc, dst, a, b unsafe.Pointer, n, size int) {
	race.ReadRange(a, n*size)
	race.ReadRange(b, n*size)
	race.WriteRange(dst, n*size)
	f((*byte)(dst), (*byte)(a), (*byte)(b), n)
}

//go:noinline
func scalePiece(f scaleFunc, dst, a unsafe.Pointer, n, size int, x float64) {
	race.ReadRange(a, n*size)
	race.WriteRange(dst, n*size)
	f((*byte)(dst), (*byte)(a), n, x)
}

//go:noinline
func scaleAddPiece(f scaleAddFunc, dst, a, b unsafe.Pointer, n, size int, x float64) {
	race.ReadRange(a, n*size)
	race.ReadRange(b, n*size)
	race.WriteRange(dst, n*size)
	f((*byte)(dst), (*byte)(a), (*byte)(b), n, x)
}

//go:noinline
func copyPiece(dst, src unsafe.Pointer, bytes int) {
	race.ReadRange(src, bytes)
	race.WriteRange(dst, bytes)
	copy(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(src), bytes))
}
