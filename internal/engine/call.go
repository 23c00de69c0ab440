package engine

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/tutti-go/tutti/internal/kernel"
)

// A Verb is a kind of collective operation.
type Verb uint8

// The verbs. Those after Barrier carry no user data: they are calls on a
// communicator that all its ranks make together.
const (
	AllReduce Verb = iota + 1
	Reduce
	Broadcast
	AllGather
	ReduceScatter
	Gather
	Scatter
	AllToAll
	Barrier
	Split
	Dup
	Alloc
	Group // several calls that travel as one
)

var verbNames = [...]string{
	AllReduce: "AllReduce", Reduce: "Reduce", Broadcast: "Broadcast", AllGather: "AllGather",
	ReduceScatter: "ReduceScatter", Gather: "Gather", Scatter: "Scatter", AllToAll: "AllToAll",
	Barrier: "Barrier", Split: "Split", Dup: "Dup", Alloc: "Alloc", Group: "Batch",
}

func (v Verb) String() string {
	if v > 0 && int(v) < len(verbNames) {
		return verbNames[v]
	}
	return fmt.Sprintf("verb %d", uint8(v))
}

// Op is the name of the method that makes such a call. It does not allocate.
func (c *Call) Op() string {
	if c.Method != "" {
		return c.Method
	}
	if c.Uneven {
		switch c.Verb {
		case AllGather:
			return "AllGatherV"
		case ReduceScatter:
			return "ReduceScatterV"
		case Gather:
			return "GatherV"
		case Scatter:
			return "ScatterV"
		case AllToAll:
			return "AllToAllV"
		}
	}
	return c.Verb.String()
}

// Reduces reports whether the verb combines elements.
func (v Verb) Reduces() bool { return v == AllReduce || v == Reduce || v == ReduceScatter }

// Rooted reports whether the verb has a root.
func (v Verb) Rooted() bool {
	return v == Reduce || v == Broadcast || v == Gather || v == Scatter
}

// A Red says how elements are combined.
type Red uint8

// The reductions. Avg scales elements by 1/ranks before the sum, PreMul each
// rank's elements by that rank's own factor. Both are for floating-point
// elements only: they are the last two, which Check relies on.
const (
	Sum Red = iota + 1
	Prod
	Min
	Max
	Avg
	PreMul
)

var redNames = [...]string{Sum: "sum", Prod: "prod", Min: "min", Max: "max", Avg: "avg", PreMul: "premul"}

func (r Red) String() string {
	if r > 0 && int(r) < len(redNames) {
		return redNames[r]
	}
	return fmt.Sprintf("op %d", uint8(r))
}

// Mem is a run of elements in memory. It does not own the memory.
type Mem struct {
	Ptr    unsafe.Pointer
	N      int // elements
	Type   kernel.DType
	Device int16 // zero: host memory; otherwise Ptr is an address on the device numbered Device-1, or it is NoSuchDevice
}

// Marks for memory that cannot be. Every check refuses it.
const (
	// OutOfRange is the N of memory that was sliced beyond its end.
	OutOfRange = math.MinInt
	// NoSuchDevice is the Device of memory on a device whose number no device has.
	// N holds that number.
	NoSuchDevice = -1
	// maxDevice is the highest number that a device can have here.
	maxDevice = math.MaxInt16 - 1
)

// OnDevice returns n elements at an address of the device with that number.
func OnDevice(device int, ptr unsafe.Pointer, t kernel.DType, n int) Mem {
	if device < 0 || device > maxDevice {
		return Mem{Ptr: ptr, N: device, Type: t, Device: NoSuchDevice}
	}
	return Mem{Ptr: ptr, N: n, Type: t, Device: int16(device + 1)}
}

// Nothing reports whether m is the zero value: no buffer at all, as opposed to
// a buffer of no elements.
func (m Mem) Nothing() bool { return m.Type == 0 }

// Bytes is the size of the run.
func (m Mem) Bytes() int { return m.N * m.Type.Size() }

// Slice is the run of n elements that begins at element i. An empty run begins
// where m does: behind the last element there may be other memory.
func (m Mem) Slice(i, n int) Mem {
	if n > 0 {
		m.Ptr = m.At(i)
	}
	m.N = n
	return m
}

// At is the address of element i.
func (m Mem) At(i int) unsafe.Pointer { return unsafe.Add(m.Ptr, i*m.Type.Size()) }

// Copy copies as many elements as dst has, unless they are there already.
func Copy(dst, src Mem) {
	if dst.Ptr != src.Ptr && dst.N > 0 {
		kernel.Copy(dst.Ptr, src.Ptr, dst.Bytes())
	}
}

// overlaps reports whether two runs share a byte. Host and devices have one
// address space, in which pinned memory may be both.
func (m Mem) overlaps(o Mem) bool {
	a, b := uintptr(m.Ptr), uintptr(o.Ptr)
	return m.N > 0 && o.N > 0 && a < b+uintptr(o.Bytes()) && b < a+uintptr(m.Bytes())
}

// same reports whether two runs are the same memory.
func (m Mem) same(o Mem) bool { return m.Ptr == o.Ptr && m.Bytes() == o.Bytes() }

// A Call describes one collective operation as one rank sees it.
//
// The even forms use Dst and Src whole: where a verb divides one of them, rank
// r's share is the r-th of equal parts. The uneven forms have one Mem per rank
// in DstParts or SrcParts instead, for the side that the verb divides.
type Call struct {
	Verb   Verb
	Red    Red
	Uneven bool
	Root   int
	Scale  float64 // PreMul's factor
	Name   string
	Method string // what Op says, for a call that an engine makes on behalf of another; "" for none
	// Of is the call of which this one is a step, for an engine that is made of others; nil for none.
	// The ranks compare it in place of Name, and errors show it in place of the step.
	Of *Call

	Dst, Src           Mem
	DstParts, SrcParts []Mem
}

// DstPart is the share of the destination that holds what comes from rank r.
func (c *Call) DstPart(r, size int) Mem {
	if c.Uneven {
		return c.DstParts[r]
	}
	n := c.Dst.N / size
	return c.Dst.Slice(r*n, n)
}

// SrcPart is the share of the source that is meant for rank r.
func (c *Call) SrcPart(r, size int) Mem {
	if c.Uneven {
		return c.SrcParts[r]
	}
	n := c.Src.N / size
	return c.Src.Slice(r*n, n)
}

// Forget lets go of the memory that the call speaks of.
func (c *Call) Forget() {
	c.Dst.Ptr, c.Src.Ptr = nil, nil
	if c.Uneven {
		c.DstParts, c.SrcParts = nil, nil
	}
}
