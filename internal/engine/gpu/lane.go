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
type lane struct {
	mu     sync.Mutex
	clock  uint64 // the latest time seen
	places []*transfer
	busy   bool // a goroutine starts messages
	start  func(*transfer)
}

// propose gives a received message a place that may still move back.
func (l *lane) propose(t *transfer) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	t.time = l.clock
	l.places = append(l.places, t)
	return t.time
}

// decide gives a sent message its place, not before what was proposed.
func (l *lane) decide(t *transfer, proposed uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock = max(l.clock+1, proposed)
	t.time, t.placed = l.clock, true
	l.places = append(l.places, t)
	return t.time
}

// place gives a received message the place that was decided.
func (l *lane) place(t *transfer, time uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock = max(l.clock, time)
	t.time, t.placed = time, true
}

// leave takes a message out, and reports false if its turn had come already.
func (l *lane) leave(t *transfer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.places, t)
	if i >= 0 {
		l.places = slices.Delete(l.places, i, i+1)
	}
	return i >= 0
}

// advance starts the messages whose turn has come, one after the other, unless
// another goroutine does.
func (l *lane) advance() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy {
		return
	}
	l.busy = true
	for t := l.next(); t != nil; t = l.next() {
		l.mu.Unlock()
		l.start(t)
		l.mu.Lock()
	}
	l.busy = false
}

// next takes out the message whose turn it is, if it has its place.
func (l *lane) next() *transfer {
	if len(l.places) == 0 {
		return nil
	}
	t := slices.MinFunc(l.places, func(a, b *transfer) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.from, b.from), cmp.Compare(a.number, b.number))
	})
	if !t.placed {
		return nil
	}
	l.places = slices.DeleteFunc(l.places, func(o *transfer) bool { return o == t })
	return t
}
