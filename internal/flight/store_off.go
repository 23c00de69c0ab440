//go:build !race

package flight

// put stores a word that a reader of the ring may load at the same time. A word
// is never torn, and a reader finds out whether a record was being written; an
// atomic store would cost more than the rest of the record. The race detector,
// which cannot know that, is given one.
func put(p *uint64, v uint64) { *p = v }
