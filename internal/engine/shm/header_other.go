//go:build !amd64 || race

package shm

// put copies from to the slot, the step last. The atomic store orders the other
// stores before it.
func (h *header) put(from *header, step uint64) {
	h.sig, h.n, h.tail = from.sig, from.n, from.tail
	h.step.Store(step)
}
