package engine

import (
	"errors"
	"math"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/kernel"
)

// TestFootprintOfMany checks that Footprint finds one overlap among very many operations, and
// accepts memory that all of them only read.
func TestFootprintOfMany(t *testing.T) {
	const n = 20_000
	shared, own := make([]byte, 8), make([]byte, 8*n)
	mem := func(b []byte) Mem {
		return Mem{Ptr: unsafe.Pointer(unsafe.SliceData(b)), N: len(b), Type: kernel.Uint8}
	}
	var f Footprint
	add := func() {
		f.Reset()
		for i := range n {
			k := (i*7919 + 5) % n
			f.AddCall(i, &Call{Verb: AllReduce, ReduceOp: Sum, Dst: mem(own[8*k : 8*k+8]), Src: mem(shared)})
		}
	}
	add()
	if err := f.Check(0, 4); err != nil {
		t.Error(err)
	}
	add()
	f.AddMessage(0, false, mem(shared[7:]))
	if err := f.Check(0, 4); !errors.Is(err, ErrInvalid) {
		t.Errorf("a message that is received into the source of all: %v", err)
	}
	add()
	f.AddMessage(0, true, mem(own[8*n-9:8*n-8]))
	if err := f.Check(0, 4); !errors.Is(err, ErrInvalid) {
		t.Errorf("a message that sends what is written: %v", err)
	}
}

// TestLengths checks that every verb, and Call.usual, refuse lengths whose size in bytes or whose
// last address overflows.
func TestLengths(t *testing.T) {
	var x [1]float32
	for _, n := range []int{-1, math.MinInt, math.MaxInt, math.MaxInt / 4, math.MaxInt/2 + 1, math.MaxInt/4 + 1} {
		m := Mem{Ptr: unsafe.Pointer(&x), N: n, Type: kernel.Float32}
		for v := AllReduce; v < Barrier; v++ {
			c := Call{Verb: v, ReduceOp: Sum, Dst: m, Src: m}
			if err := c.Check(0, 2); !errors.Is(err, ErrInvalid) {
				t.Errorf("%v of %d elements: %v", v, n, err)
			}
		}
		if err := (&Message{Peer: 1, Mem: m}).Check(0, 2); !errors.Is(err, ErrInvalid) {
			t.Errorf("a message of %d elements: %v", n, err)
		}
	}
}
