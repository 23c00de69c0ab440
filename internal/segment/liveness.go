package segment

import (
	"sync/atomic"
	"unsafe"
)

// robustList is the memory of a Liveness: a robust futex list with one element, in the kernel's
// format (struct robust_list_head).
type robustList struct {
	first   uintptr // address of the first element
	offset  int64   // from an element to its futex
	pending uintptr // address of an element that is being added or removed
	next    uintptr // address of the next element: the list itself
	lock    atomic.Uint32
}

// LivenessBytes is the size of the memory of a Liveness.
const LivenessBytes = int(unsafe.Sizeof(robustList{}))

// futexOwnerDied is the bit that the kernel sets in a futex when its owner exits.
const futexOwnerDied = 0x40000000

// UseLiveness makes p known by a Liveness in mem, instead of by its nonce, while that process holds
// the Liveness. mem must stay mapped while ReadProcess may be called. UseLiveness must not be
// called concurrently with ReadProcess. It does not access mem.
func (p *ProcessIdentity) UseLiveness(mem unsafe.Pointer) { p.liveness = (*robustList)(mem) }

// Ended reports whether the process has exited without Liveness.Close. It reports false if that is
// not known.
func (p *ProcessIdentity) Ended() bool { return p.liveness != nil && p.liveness.ownerDied() }

// ownerDied reports whether the owner has exited without Close.
func (l *robustList) ownerDied() bool { return l.lock.Load()&futexOwnerDied != 0 }

// held reports whether a running process owns the futex.
func (l *robustList) held() bool {
	v := l.lock.Load()
	return v != 0 && v&futexOwnerDied == 0
}
