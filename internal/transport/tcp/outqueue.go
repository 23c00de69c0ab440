package tcp

import "slices"

// An outHeader is a header that is queued for a peer.
type outHeader struct {
	kind  byte
	id    uint64
	state *msgState // of the message to be announced or sent
}

// An outQueue is a first-in, first-out queue of headers.
type outQueue struct {
	list   []outHeader
	popped int
}

func (w *outQueue) len() int { return len(w.list) - w.popped }

func (w *outQueue) push(x outHeader) {
	// The popped part is moved away only when it is half of the list.
	if w.popped > 16 && 2*w.popped > len(w.list) {
		w.list = slices.Delete(w.list, 0, w.popped)
		w.popped = 0
	}
	w.list = append(w.list, x)
}

func (w *outQueue) pop() outHeader {
	x := w.list[w.popped]
	w.list[w.popped] = outHeader{}
	if w.popped++; w.popped == len(w.list) {
		w.list, w.popped = w.list[:0], 0
	}
	return x
}

// find returns the queued header of a message, or nil.
func (w *outQueue) find(x *msgState) *outHeader {
	for i := w.popped; i < len(w.list); i++ {
		if w.list[i].state == x {
			return &w.list[i]
		}
	}
	return nil
}

// remove removes a header that find has returned.
func (w *outQueue) remove(x *outHeader) {
	header := *x
	w.list = slices.DeleteFunc(w.list, func(o outHeader) bool { return o == header })
}
