package shm

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// accBytes is the size of the accumulator, in bytes, when more than two sources are
// combined. It bounds a block of partial results, so that a block stays in the L1
// or L2 cache from one source to the next.
const accBytes = 32 << 10

// combine reduces the elements at e.from, one source per rank, into dst, in rank
// order. dst may be one of the sources. A source that is already multiplied by its
// factor has scale 1, and a multiplication by 1 changes no bit.
func (e *Engine) combine(c *engine.Call, dst unsafe.Pointer, n int, t kernel.DType) {
	mul := c.Scales()
	if len(e.from) == 1 {
		switch {
		case mul:
			kernel.Scale(dst, e.from[0], n, t, e.scale[0])
		case dst != e.from[0]:
			kernel.Copy(dst, e.from[0], n*t.Size())
		}
		return
	}
	if len(e.from) == 2 && !mul {
		kernel.Reduce(dst, e.from[0], e.from[1], n, t, c.Red.Info().Kernel)
	} else {
		e.combineBlocks(c, dst, n, t, mul)
	}
}

// combineBlocks combines block by block in e.acc. It writes dst only together with
// the last source, because dst may be any of the sources.
func (e *Engine) combineBlocks(c *engine.Call, dst unsafe.Pointer, n int, t kernel.DType, mul bool) {
	if e.acc == nil {
		e.acc = make([]byte, accBytes)
	}
	acc := unsafe.Pointer(unsafe.SliceData(e.acc))
	op := c.Red.Info().Kernel
	last := len(e.from) - 1
	size := t.Size()
	for done := 0; done < n; {
		m := min(n-done, accBytes/size)
		off := done * size
		from := func(i int) unsafe.Pointer { return unsafe.Add(e.from[i], off) }
		if mul {
			kernel.Scale(acc, from(0), m, t, e.scale[0])
		}
		for i := 1; i <= last; i++ {
			a, out := acc, acc
			if i == 1 && !mul {
				a = from(0)
			}
			if i == last {
				out = unsafe.Add(dst, off)
			}
			if mul {
				kernel.ScaleAdd(out, a, from(i), m, t, e.scale[i])
			} else {
				kernel.Reduce(out, a, from(i), m, t, op)
			}
		}
		done += m
	}
}
