package engine

import (
	"math"
	"unsafe"

	"github.com/tutti-go/tutti/internal/kernel"
)

// Mem is a run of elements in memory. It does not own the memory.
type Mem struct {
	Ptr    unsafe.Pointer
	N      int // elements
	Type   kernel.DType
	Device int16 // 0: host memory; NoSuchDevice: none; otherwise Ptr is an address on device Device-1
}

// Marks of memory that does not exist. Every check refuses it.
const (
	// OutOfRange is the N of memory that was sliced beyond its end.
	OutOfRange = math.MinInt
	// Freed is the N of memory of Alloc after Free.
	Freed = math.MinInt + 1
	// NoSuchDevice is the Device of memory on a device with an impossible number.
	// N holds that number.
	NoSuchDevice = -1
	// maxDevice is the highest device number that Mem.Device can hold.
	maxDevice = math.MaxInt16 - 1
)

// OnDevice returns n elements at address ptr of the device with that number.
func OnDevice(device int, ptr unsafe.Pointer, t kernel.DType, n int) Mem {
	if device < 0 || device > maxDevice {
		return Mem{Ptr: ptr, N: device, Type: t, Device: NoSuchDevice}
	}
	return Mem{Ptr: ptr, N: n, Type: t, Device: int16(device + 1)}
}

// Nothing reports whether m is the zero value. The zero value stands for a missing
// buffer; a buffer without elements has a type.
func (m Mem) Nothing() bool { return m.Type == 0 }

// Bytes returns the size of the run in bytes.
func (m Mem) Bytes() int { return m.N * m.Type.Size() }

// Slice returns the run of n elements that begins at element i. An empty run begins
// where m does, because the address behind the last element may belong to other
// memory.
func (m Mem) Slice(i, n int) Mem {
	if n > 0 {
		m.Ptr = m.At(i)
	}
	m.N = n
	return m
}

// At returns the address of element i.
func (m Mem) At(i int) unsafe.Pointer { return unsafe.Add(m.Ptr, i*m.Type.Size()) }

// Copy copies dst.N elements from src to dst, unless both begin at one address.
func Copy(dst, src Mem) {
	if dst.Ptr != src.Ptr && dst.N > 0 {
		kernel.Copy(dst.Ptr, src.Ptr, dst.Bytes())
	}
}

// overlaps reports whether two runs share a byte. It compares addresses alone,
// because the host and all devices share one address space.
func (m Mem) overlaps(o Mem) bool {
	a, b := uintptr(m.Ptr), uintptr(o.Ptr)
	return m.N > 0 && o.N > 0 && a < b+uintptr(o.Bytes()) && b < a+uintptr(m.Bytes())
}

// same reports whether two runs are the same memory.
func (m Mem) same(o Mem) bool { return m.Ptr == o.Ptr && m.Bytes() == o.Bytes() }

// A Call describes one collective operation as one rank sees it.
//
// An even form uses Dst and Src. On a side that the verb divides, rank r's share
// is the r-th of equal parts. An uneven form passes a divided side as one Mem per
// rank, in DstParts or SrcParts.
type Call struct {
	Verb     Verb
	ReduceOp ReduceOp
	Uneven   bool
	Root     int
	Scale    float64 // factor of an operator with Scaling ByFactor
	Name     string  // of the operation, for error texts; must be equal on all ranks
	Method   string  // result of Op for a call that an engine makes for another one; "": none
	// Of is the call of which this one is a step, for an engine that contains other engines. Nil: none.
	// The ranks compare it in place of Name, and errors show it in place of the step.
	Of *Call

	Dst, Src           Mem
	DstParts, SrcParts []Mem
}

// Op returns the name of the method that makes such a call. It does not allocate.
func (c *Call) Op() string {
	if c.Method != "" {
		return c.Method
	}
	return c.Verb.FormName(c.Uneven)
}

// DstPart returns the share of a divided destination that holds data of rank r.
func (c *Call) DstPart(r, size int) Mem {
	if c.Uneven {
		return c.DstParts[r]
	}
	n := c.Dst.N / size
	return c.Dst.Slice(r*n, n)
}

// SrcPart returns the share of a divided source that rank r reads.
func (c *Call) SrcPart(r, size int) Mem {
	if c.Uneven {
		return c.SrcParts[r]
	}
	n := c.Src.N / size
	return c.Src.Slice(r*n, n)
}

// Forget drops the references to the memory of the call.
func (c *Call) Forget() {
	c.Dst.Ptr, c.Src.Ptr = nil, nil
	if c.Uneven {
		c.DstParts, c.SrcParts = nil, nil
	}
}
