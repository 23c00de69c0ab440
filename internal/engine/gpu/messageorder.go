package gpu

import (
	"cmp"
	"slices"
	"sync"
)

// A lane is the order in which a rank gives its messages to NCCL. Two ranks that
// wait for each other with different messages would wait for ever, and so would
// three in a ring: so all messages of a group have one order, of which each rank
// follows its part.
//
// The order is by a time that the two ranks of a message find together, once both
// have it. The receiver proposes a time later than all that it has seen, and the
// sender makes it later than all that it has seen. Until the receiver knows it,
// nothing that comes after its proposal goes before: the time can only grow.
type messageOrder struct {
	mu     sync.Mutex
	clock  uint64 // the deadline time seen
	places []*transfer
	busy   bool // a goroutine starts messages
	start  func(*transfer)
}

// propose gives a received message a place that may still move back.
func (o *messageOrder) propose(t *transfer) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clock++
	t.time = o.clock
	o.places = append(o.places, t)
	return t.time
}

// decide gives a sent message its place, not before what was proposed.
func (o *messageOrder) decide(t *transfer, proposed uint64) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clock = max(o.clock+1, proposed)
	t.time, t.placed = o.clock, true
	o.places = append(o.places, t)
	return t.time
}

// place gives a received message the place that was decided.
func (o *messageOrder) place(t *transfer, time uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clock = max(o.clock, time)
	t.time, t.placed = time, true
}

// leave takes a message out, and reports false if its turn had come already.
func (o *messageOrder) leave(t *transfer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(o.places, t)
	if i >= 0 {
		o.places = slices.Delete(o.places, i, i+1)
	}
	return i >= 0
}

// advance starts the messages whose turn has come, one after the other, unless
// another goroutine does.
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

// next takes out the message whose turn it is, if it has its place.
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
