//go:build !race

package flight

// put stores a word that a reader of the ring may load at the same time. An aligned
// word is never torn, and the reader detects whether a record was being written. An
// atomic store would cost more than the rest of the record. With the race detector,
// put is an atomic store.
func put(p *uint64, v uint64) { *p = v }
