package enginetest

import (
	"sync"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A cache spares the ranks of one process from working out the same inputs and
// results. It changes no result, and the ranks do not meet through it while an
// operation's memory is in use: the race detector would take that for
// synchronisation.
type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]*cacheEntry
}

type cacheKey struct {
	t     kernel.DType
	c     class
	red   engine.Red // zero: an input
	rank  int
	ranks int
	n     int
	seed  uint64
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
