package shm

// The others have read what this rank is about to write: its slots' heads they
// look at all the time. Each line has to come back from their caches before a
// store to it is seen, and stores are seen in order. So lines are asked for
// early, and come while something else is done.

// claimMost is the largest call for which lines are claimed: a core waits for few
// of them at a time.
const prefetchMax = 4 << 10

// claimSlot claims what a call will write of the next slot: its head, which comes
// while the call is got ready, and its data.
func (e *Engine) prefetchSlot(bytes int) {
	if bytes > prefetchMax {
		bytes = 0
	}
	prefetchWrite(e.board.slot(e.step+1).at(0), headerBytes+bytes)
}

// claimNext claims the data's place in the two slots after this one, for calls as
// large as this one: a call without data may come between. Less data than this
// comes in time. Heads are not claimed so early, for the others take them back.
func (e *Engine) prefetchNextSlots(bytes int) {
	const minBytes = 512
	if bytes > minBytes && bytes <= prefetchMax {
		prefetchWrite(e.board.slot(e.step+1).at(headerBytes), bytes)
		prefetchWrite(e.board.slot(e.step+2).at(headerBytes), bytes)
	}
}

// wantData asks for the data of another rank's slot whose head has just come, unless
// it came with it: it is on its way while the head is compared. More than this the
// processor sees coming.
func prefetchData(h *header) {
	if bytes := int(h.n) * h.sig.Type.Size(); bytes > len(h.tail) && bytes <= prefetchMax {
		prefetchRead(h.dataAfterHeader(&h.sig), bytes)
	}
}
