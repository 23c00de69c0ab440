package gpu

import (
	"cmp"
	"slices"
	"sync"
)

// A messageOrder is the order in which a rank passes its messages to NCCL. Two ranks that wait for
// each other with different messages would deadlock, and so would three in a ring. So all messages
// of a group have one total order, and each rank follows its part of it.
//
// The order is by logical time. The two ranks of a message agree on its time once both have posted
// it: the receiver proposes a time later than all times that it has seen, and the sender decides on
// a time that is not earlier than the proposal and later than all times that it has seen. Until the
// receiver knows the decision, it starts no message with a time after its proposal, because the
// decided time is not earlier than the proposal.
type messageOrder struct {
	mu     sync.Mutex
	clock  uint64 // the latest logical time seen
	places []*transfer
	busy   bool // a goroutine is in advance
	start  func(*transfer)
}

// propose gives a received message a preliminary time, which decide may increase.
func (o *messageOrder) propose(t *transfer) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clock++
	t.time = o.clock
	o.places = append(o.places, t)
	return t.time
}

// decide gives a sent message its final time, not earlier than the proposed one.
func (o *messageOrder) decide(t *transfer, proposed uint64) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clock = max(o.clock+1, proposed)
	t.time, t.placed = o.clock, true
	o.places = append(o.places, t)
	return t.time
}

// place gives a received message the time that the sender decided on.
func (o *messageOrder) place(t *transfer, time uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clock = max(o.clock, time)
	t.time, t.placed = time, true
}

// leave removes a message. It reports false if the message was started already.
func (o *messageOrder) leave(t *transfer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(o.places, t)
	if i >= 0 {
		o.places = slices.Delete(o.places, i, i+1)
	}
	return i >= 0
}

// advance starts the messages that are next, one after the other, unless another goroutine does.
func (o *messageOrder) advance() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		return
	}
	o.busy = true
	for t := o.next(); t != nil; t = o.next() {
		o.mu.Unlock()
		o.start(t)
		o.mu.Lock()
	}
	o.busy = false
}

// next removes and returns the first message. It returns nil if the time of the first one is not
// final. o.mu is held.
func (o *messageOrder) next() *transfer {
	if len(o.places) == 0 {
		return nil
	}
	t := slices.MinFunc(o.places, func(a, b *transfer) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.from, b.from), cmp.Compare(a.number, b.number))
	})
	if !t.placed {
		return nil
	}
	o.places = slices.DeleteFunc(o.places, func(x *transfer) bool { return x == t })
	return t
}
