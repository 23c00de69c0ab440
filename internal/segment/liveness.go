package segment

import (
	"sync/atomic"
	"unsafe"
)

// lifeLine is what the memory of a Life holds: the list, of one element, of the
// locks that the thread holds, in the form in which the system wants it.
type robustList struct {
	first   uintptr // the first element
	offset  int64   // from an element to its lock
	pending uintptr // an element that is being added or removed
	next    uintptr // the next one: the list itself
	lock    atomic.Uint32
}

// LifeBytes is the size of the memory of a Life.
const LivenessBytes = int(unsafe.Sizeof(robustList{}))

// holderGone is the bit that the system sets in a lock.
const futexOwnerDied = 0x40000000

// Trust has the process be known by the Life in memory of its, in place of its mark, while it
// has one. The memory must stay mapped while there are calls of Peek. Trust is not called
// while there are any, and does not touch the memory.
func (p *ProcessIdentity) UseLiveness(mem unsafe.Pointer) { p.liveness = (*robustList)(mem) }

// Ended reports whether the process has ended without Close of its Life. It is false where
// that is not known.
func (p *ProcessIdentity) Ended() bool { return p.liveness != nil && p.liveness.ownerDied() }

// orphaned reports whether the holder has ended without Close.
func (l *robustList) ownerDied() bool { return l.lock.Load()&futexOwnerDied != 0 }

// lives reports whether there is a holder.
func (l *robustList) held() bool {
	v := l.lock.Load()
	return v != 0 && v&futexOwnerDied == 0
}
