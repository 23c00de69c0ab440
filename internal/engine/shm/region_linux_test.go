package shm

import (
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/segment"
)

// TestDropRegionWaits unmaps regions while messages are copied from them.
func TestDropRegionWaits(t *testing.T) {
	e := mappedWorld(Options{})(t, 2)[0].(*Engine)
	const bytes = 1 << 20
	dst := make([]byte, bytes)
	for id := uint64(1); id <= 20; id++ {
		mem := must(segment.Private(bytes))
		e.AddRegion(Region{ID: id, Bytes: bytes, Base: []unsafe.Pointer{mem.Part(0), mem.Part(0)}})
		copied, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for n := 0; e.readRegion(1, id, 0, unsafe.Pointer(&dst[0]), bytes); n++ {
				if n == 0 {
					close(copied)
				}
			}
		}()
		<-copied
		e.DropRegion(id)
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
		<-done
	}
}
