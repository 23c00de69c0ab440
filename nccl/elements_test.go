package nccl_test

import (
	"errors"
	"math"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/nccl"
)

// A kind is an element type, and the conversion of numbers to and from it.
type kind struct {
	t     nccl.DataType
	write func(float64) uint64
	read  func(uint64) float64
}

var kinds = []kind{
	{nccl.Int8, func(x float64) uint64 { return uint64(uint8(int8(x))) }, func(b uint64) float64 { return float64(int8(b)) }},
	{nccl.Uint8, func(x float64) uint64 { return uint64(uint8(x)) }, func(b uint64) float64 { return float64(uint8(b)) }},
	{nccl.Int32, func(x float64) uint64 { return uint64(uint32(int32(x))) }, func(b uint64) float64 { return float64(int32(b)) }},
	{nccl.Uint32, func(x float64) uint64 { return uint64(uint32(x)) }, func(b uint64) float64 { return float64(uint32(b)) }},
	{nccl.Int64, func(x float64) uint64 { return uint64(int64(x)) }, func(b uint64) float64 { return float64(int64(b)) }},
	{nccl.Uint64, func(x float64) uint64 { return uint64(x) }, func(b uint64) float64 { return float64(b) }},
	{nccl.Float16, func(x float64) uint64 { return uint64(kernel.Float32ToFloat16(float32(x))) }, func(b uint64) float64 { return float64(kernel.Float16ToFloat32(uint16(b))) }},
	{nccl.BFloat16, func(x float64) uint64 { return uint64(kernel.Float32ToBFloat16(float32(x))) }, func(b uint64) float64 { return float64(kernel.BFloat16ToFloat32(uint16(b))) }},
	{nccl.Float32, func(x float64) uint64 { return uint64(math.Float32bits(float32(x))) }, func(b uint64) float64 { return float64(math.Float32frombits(uint32(b))) }},
	{nccl.Float64, math.Float64bits, math.Float64frombits},
}

// put allocates device memory that holds numbers as elements of a type. The caller frees the slice.
func put(r *rank, k kind, numbers []float64) (*cuda.Slice[uint8], nccl.Buffer, error) {
	size := k.t.Size()
	host := make([]uint8, len(numbers)*size)
	for i, x := range numbers {
		bits := k.write(x)
		for j := range size {
			host[i*size+j] = byte(bits >> (8 * j))
		}
	}
	s, err := cuda.Alloc[uint8](r.dev, len(host))
	if err != nil {
		return nil, nccl.Buffer{}, err
	}
	b, err := nccl.Raw(r.dev, s.Pointer(), len(numbers), k.t)
	return s, b, errors.Join(err, s.CopyFrom(host))
}

func get(s *cuda.Slice[uint8], k kind) ([]float64, error) {
	size := k.t.Size()
	host := make([]uint8, s.Len())
	err := s.CopyTo(host)
	numbers := make([]float64, len(host)/size)
	for i := range numbers {
		var bits uint64
		for j := range size {
			bits |= uint64(host[i*size+j]) << (8 * j)
		}
		numbers[i] = k.read(bits)
	}
	return numbers, err
}

var opList = []nccl.Op{nccl.Sum, nccl.Prod, nccl.Max, nccl.Min, nccl.Avg}

// value returns element i of rank r's contribution. It is small, so that results fit into every type.
func value(r, i int) float64 { return float64((i+r)%3 + 1) }

// reference returns element i of the reduction of value over n ranks.
func reference(op nccl.Op, n, i int) float64 {
	x := value(0, i)
	for r := 1; r < n; r++ {
		y := value(r, i)
		switch op {
		case nccl.Prod:
			x *= y
		case nccl.Max:
			x = max(x, y)
		case nccl.Min:
			x = min(x, y)
		default:
			x += y
		}
	}
	if op == nccl.Avg {
		x /= float64(n)
	}
	return x
}

// near compares results. Averages are rounded on the way, and averages of integers are rounded down.
func near(k kind, op nccl.Op, got, want float64) bool {
	if op != nccl.Avg {
		return got == want
	}
	switch k.t {
	case nccl.Float16, nccl.BFloat16, nccl.Float32, nccl.Float64:
		return math.Abs(got-want) <= 0.05
	}
	return got == math.Floor(want)
}
