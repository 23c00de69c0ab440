package wait

import "sync/atomic"

// Posted says that a word that others may wait for has just been stored, by a
// store that the processor may still hold back. Those who sleep are looked for
// later, so that what is loaded next is on its way meanwhile: before this
// waiter gives way or sleeps, when another word is posted, at Flush or at End.
func (w *Waiter) DeferWake(word *atomic.Uint64) {
	w.Flush()
	w.deferred = word
}

// Tell stores a word that others may wait for, and wakes those who sleep until it
// changes, or until what was posted before does.
func (w *Waiter) StoreAndWake(word *atomic.Uint64, v uint64) {
	word.Store(v) // what is loaded next is not older: see Flush
	if w.deferred != nil {
		w.lot.Wake(w.deferred)
		w.deferred = nil
	}
	w.lot.Wake(word)
}

// Flush wakes those who sleep until the posted word changes. When it returns,
// nothing that this waiter loads from now on is older than what it posted.
func (w *Waiter) Flush() {
	if w.deferred == nil {
		return
	}
	w.fence.Store(0) // who sleeps is looked at after the store
	w.lot.Wake(w.deferred)
	w.deferred = nil
}
