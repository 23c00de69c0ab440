package enginetest

import (
	"sync"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// cache spares the ranks of one process from computing the same inputs and results
// again. It does not change any result. Ranks do not synchronize through it while
// an operation uses its memory, because the race detector would count that as
// synchronization between the ranks.
type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]*cacheEntry // guarded by mu
}

type cacheKey struct {
	t        kernel.DType
	c        class
	red      engine.ReduceOp // zero: the entry is an input
	combined int             // number of ranks whose inputs are combined
	rank     int
	ranks    int
	n        int
	seed     uint64
}

type cacheEntry struct {
	once  sync.Once
	bytes []byte
}

func newCache() *cache { return &cache{entries: make(map[cacheKey]*cacheEntry)} }

func (c *cache) get(key cacheKey, compute func() []byte) []byte {
	c.mu.Lock()
	e := c.entries[key]
	if e == nil {
		e = new(cacheEntry)
		c.entries[key] = e
	}
	c.mu.Unlock()
	e.once.Do(func() { e.bytes = compute() })
	return e.bytes
}
