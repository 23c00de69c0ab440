package tutti

import (
	"context"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// Memory holds elements in memory that every rank of the host can access, so that
// operations on it need no copies. It stays valid after its Comm is closed. Free
// releases it.
type Memory[T Elem] struct {
	region *engine.Region
	elems  []T
	free   sync.Once
	freed  bool
	err    error
}

// maxAlloc is the largest size in bytes: more than any process has. The Go runtime panics
// on much larger sizes.
const maxAlloc = min(1<<46, math.MaxInt)

// Alloc returns n zeroed elements of shared memory. All ranks call it together, with the same n; each gets
// its own elements. A negative or too large n is refused on this rank alone; any later error poisons the
// Comm. Close of the Comm waits for an Alloc in progress, and the memory outlives the Comm.
func Alloc[T Elem](ctx context.Context, c *Comm, n int) (*Memory[T], error) {
	t := kernel.DType(TypeOf[T]())
	if n < 0 || n > maxAlloc/t.Size() {
		return nil, c.refuse("Alloc", &cause{kind: ErrInvalid, reason: fmt.Sprintf("%d elements; the number must be 0 to %d", n, maxAlloc/t.Size())})
	}
	leave, err := c.stay("Alloc")
	if err != nil {
		return nil, err
	}
	defer leave()
	seq, err := c.do(ctx, &engine.Call{Verb: engine.Alloc, Src: engine.Mem{N: n, Type: t}})
	if err != nil {
		return nil, err
	}
	r, err := c.e.Alloc(ctx, seq, n*t.Size())
	if err != nil {
		c.noteFailed(seq)
		return nil, c.report(err, "Alloc", seq)
	}
	return &Memory[T]{region: r, elems: unsafe.Slice((*T)(r.Ptr), n)}, nil
}

// Slice returns the elements. It must not be used after Free.
func (m *Memory[T]) Slice() []T { return m.elems }

// Buffer returns the elements as a Buffer. After Free every operation refuses it with ErrInvalid.
func (m *Memory[T]) Buffer() Buffer {
	b := Of(m.elems)
	if m.freed {
		b.m.N = engine.Freed
	}
	return b
}

// Free releases the memory. No rank may use it any more. Free may be called more
// than once.
func (m *Memory[T]) Free() error {
	m.free.Do(func() {
		m.elems, m.freed = nil, true
		m.err = m.region.Free()
	})
	return m.err
}
