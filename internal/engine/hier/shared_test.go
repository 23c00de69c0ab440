package hier

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/engine/shm"
)

// processes gives each rank of a host its own memory, as for ranks that are processes. So the ranks do not
// share the failures of their host. It writes c.local of the host's ranks; cluster.group calls it with
// cluster.mu held.
func processes(k *groupConfig, c *group, host int) {
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
			Options: k.local, Rank: i, Memory: memory,
			OnClose: func() error { return nil },
		})
	}
}

func TestProcesses(t *testing.T) {
	// Ranks that wait for another process do not yield to goroutines, so each needs a thread.
	before := runtime.GOMAXPROCS(20)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	k := groupConfig{host: processes, opt: Options{Segment: 16 << 10}, local: shm.Options{Small: 512}}
	enginetest.Run(t, world(interleaved, k), enginetest.Options{Light: true})
}
