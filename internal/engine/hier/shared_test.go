package hier

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/engine/shm"
)

// processes makes the ranks of a host as if they were processes, each with
// memory of its own, so that they do not share their host's failures.
func processes(k *kit, c *crew, host int) {
	ranks := c.ranks(host)
	memory := make([]unsafe.Pointer, len(ranks))
	for i := range memory {
		const line = 128
		bytes := make([]byte, shm.SharedBytes(len(ranks), k.local)+line)
		base := unsafe.Pointer(unsafe.SliceData(bytes))
		memory[i] = unsafe.Add(base, -uintptr(base)&(line-1))
	}
	for i, r := range ranks {
		c.local[r] = shm.NewShared(shm.Shared{
			Options: k.local, Rank: i, Memory: memory, Messages: Mute{},
			OnClose: func() error { return nil },
		})
	}
}

func TestProcesses(t *testing.T) {
	// Ranks that wait for another process do not give way to goroutines.
	before := runtime.GOMAXPROCS(20)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	k := kit{host: processes, opt: Options{Segment: 16 << 10}, local: shm.Options{Small: 512}}
	enginetest.Run(t, world(notInOrder, k), enginetest.Options{Light: true})
}
