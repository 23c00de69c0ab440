package wait

import "sync/atomic"

// DeferWake defers the wake-up for a word that was just stored. The wake-up must read the number of
// sleepers after the store is visible. Deferring lets later loads start before that. The wake-up
// happens before this waiter yields or sleeps, at the next DeferWake or StoreAndWake, at Flush, or
// at End.
func (w *Waiter) DeferWake(word *atomic.Uint64) {
	w.Flush()
	w.deferred = word
}

// StoreAndWake stores v in word and wakes the waiters of word and of the deferred word.
func (w *Waiter) StoreAndWake(word *atomic.Uint64, v uint64) {
	word.Store(v) // a barrier: the number of sleepers is loaded after it
	if w.deferred != nil {
		w.lot.Wake(w.deferred)
		w.deferred = nil
	}
	w.lot.Wake(word)
}

// Flush wakes the waiters of the deferred word. Loads after Flush are not older than the store of
// that word.
func (w *Waiter) Flush() {
	if w.deferred == nil {
		return
	}
	w.fence.Store(0) // a barrier: Wake loads the number of sleepers after the deferred store
	w.lot.Wake(w.deferred)
	w.deferred = nil
}
