//go:build !amd64 || race

package shm

// put writes the head, its step last.
func (h *header) put(from *header, step uint64) {
	h.sig, h.n, h.tail = from.sig, from.n, from.tail
	h.step.Store(step)
}
