package kernel

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// clockCalls is the number of calls that are timed together.
const clockCalls = 4

// BenchmarkSum measures the sum of every type on every path, into a destination that is one of
// the sources, as collectives do it, and into another destination. In turns with the kernel
// it times two others. "x-plain" is the kernel's speed divided by that of a plain Go loop over
// as many bytes of float32 or int32. "of-f32" is its elements per second divided by those of
// the float32 kernel.
func BenchmarkSum(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
		types []DType
	}{
		{"256KiB", 256 << 10, []DType{Int8, Uint8, Int16, Uint16, Int32, Uint32, Int64, Uint64, Float16, BFloat16, Float32, Float64}},
		{"64MiB", 64 << 20, []DType{Int32, Float16, BFloat16, Float32}},
	} {
		for _, table := range tables() {
			for _, dt := range size.types {
				for _, place := range []string{"inplace", "apart"} {
					b.Run(fmt.Sprintf("%s/%v/%s/%s", table.path, dt, size.name, place), func(b *testing.B) {
						benchmarkSum(b, table, dt, size.bytes, place == "inplace")
					})
				}
			}
		}
	}
}

// benchmarkSum measures Reduce with one table, compared with a plain Go loop and with float32
// of as many bytes. The table is the process's while the benchmark runs, so it must not run in
// parallel.
func benchmarkSum(b *testing.B, table *table, dt DType, bytes int, inPlace bool) {
	defer chosen.Store(chosen.Swap(table))
	dst, x, y := newOperand(bytes), newOperand(bytes), newOperand(bytes)
	if inPlace {
		dst = x
	}
	n, nf := bytes/dt.Size(), bytes/4
	kernel := func() { Reduce(dst, x, y, n, dt, Sum) }
	float := func() { Reduce(dst, x, y, nf, Float32, Sum) }
	loop := func() { plainLoop[float32](dst, x, y, nf) }
	if !dt.IsFloat() {
		loop = func() { plainLoop[int32](dst, x, y, nf) }
	}

	b.ResetTimer()
	var kernels, floats, loops []time.Duration
	for range b.N {
		kernels = append(kernels, clock(kernel))
		floats = append(floats, clock(float))
		loops = append(loops, clock(loop))
		clear(unsafe.Slice((*byte)(dst), bytes)) // sums must not grow to infinity
	}
	t := float64(median(kernels))
	b.ReportMetric(clockCalls*float64(bytes)/t, "GB/s")
	b.ReportMetric(float64(median(loops))/t, "x-plain")
	b.ReportMetric(float64(median(floats))/t*float64(n)/float64(nf), "of-f32")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSmall measures the cost of a call.
func BenchmarkSmall(b *testing.B) {
	for _, table := range tables() {
		for _, dt := range []DType{Int32, Float16, Float32} {
			for _, n := range []int{1, 7, 32} {
				b.Run(fmt.Sprintf("%s/%v/%d", table.path, dt, n), func(b *testing.B) {
					defer chosen.Store(chosen.Swap(table))
					dst, x, y := newOperand(8*n), newOperand(8*n), newOperand(8*n)
					for b.Loop() {
						Reduce(dst, x, y, n, dt, Sum)
					}
				})
			}
		}
	}
}

// newOperand returns memory that is mapped and holds small numbers in every type.
func newOperand(bytes int) unsafe.Pointer {
	words := make([]uint64, bytes/8)
	for i := range words {
		words[i] = 0x0101010101010101
	}
	return unsafe.Pointer(&words[0])
}

//go:noinline
func plainLoop[T float32 | int32](dst, a, b unsafe.Pointer, n int) {
	d, x, y := unsafe.Slice((*T)(dst), n), unsafe.Slice((*T)(a), n), unsafe.Slice((*T)(b), n)
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

// clock times some calls of f, after one that brings the operands into the cache.
func clock(f func()) time.Duration {
	f()
	start := time.Now()
	for range clockCalls {
		f()
	}
	return time.Since(start)
}

func median[T cmp.Ordered](list []T) T {
	slices.Sort(list)
	return list[len(list)/2]
}
