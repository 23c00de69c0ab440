package tcp

import "slices"

// A word is one thing to say to a peer.
type word struct {
	kind byte
	id   uint64
	x    *note // of a message to be announced or sent
}

// words are said in the order in which they were pushed.
type words struct {
	list []word
	said int
}

func (w *words) len() int { return len(w.list) - w.said }

func (w *words) push(x word) {
	// The said half is moved away only when that frees half of the list.
	if w.said > 16 && 2*w.said > len(w.list) {
		w.list = slices.Delete(w.list, 0, w.said)
		w.said = 0
	}
	w.list = append(w.list, x)
}

func (w *words) pop() word {
	x := w.list[w.said]
	w.list[w.said] = word{}
	if w.said++; w.said == len(w.list) {
		w.list, w.said = w.list[:0], 0
	}
	return x
}

// find returns what is still to be said about a message, or nil.
func (w *words) find(x *note) *word {
	for i := w.said; i < len(w.list); i++ {
		if w.list[i].x == x {
			return &w.list[i]
		}
	}
	return nil
}

// remove takes out a word that find has returned.
func (w *words) remove(x *word) {
	gone := *x
	w.list = slices.DeleteFunc(w.list, func(o word) bool { return o == gone })
}
