//go:build race

package flight

import "sync/atomic"

// put is an atomic store, for the race detector; see store_off.go.
func put(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
