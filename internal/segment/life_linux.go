package segment

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Life is how others see, without a call of the system, that this process has not
// ended: a thread of it holds a lock in memory that they share, and the system
// notes there, however the process ends, that the holder is gone. It does so before
// the process's number can become another's.
type Life struct {
	end, ended chan struct{}
}

// lifeLine is what the segment of a Life holds: the list, of one element, of the
// locks that the thread holds, in the form in which the system wants it.
type lifeLine struct {
	list    uintptr // the first element
	offset  int64   // from an element to its lock
	pending uintptr // an element that is being added or removed
	element uintptr // the next one: the list itself
	lock    atomic.Uint32
}

// holderGone is the bit that the system sets in a lock.
const holderGone = 0x40000000

// Live begins a Life in a segment of this process's that is used for nothing else. It
// is closed before the segment is.
func Live(s *Segment) (*Life, error) {
	l := &Life{make(chan struct{}), make(chan struct{})}
	begun := make(chan error)
	go l.hold((*lifeLine)(s.Ptr()), begun)
	if err := <-begun; err != nil {
		return nil, err
	}
	return l, nil
}

// hold has a thread hold the lock until the end.
func (l *Life) hold(line *lifeLine, begun chan<- error) {
	defer close(l.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A program that contains C may have given the thread a list already.
	var before, size uintptr
	_, _, errno := unix.RawSyscall(unix.SYS_GET_ROBUST_LIST, 0, uintptr(unsafe.Pointer(&before)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		begun <- fmt.Errorf("segment: get_robust_list: %w", errno)
		return
	}
	base := uintptr(unsafe.Pointer(line))
	line.list = base + unsafe.Offsetof(line.element)
	line.element = base
	line.offset = int64(unsafe.Offsetof(line.lock) - unsafe.Offsetof(line.element))
	const bytes = unsafe.Offsetof(line.element)
	if _, _, errno := unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, base, bytes, 0); errno != 0 {
		begun <- fmt.Errorf("segment: set_robust_list: %w", errno)
		return
	}
	line.lock.Store(uint32(unix.Gettid()))
	begun <- nil
	<-l.end
	line.lock.Store(0)
	_, _, _ = unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, before, bytes, 0)
}

// Close ends it: others do not see any more whether the process lives.
func (l *Life) Close() {
	close(l.end)
	<-l.ended
}

// errNoLife says that a process shows no Life.
var errNoLife = errors.New("segment: the process does not show that it lives")

// Trust has the process be known by the Life in a segment of its, in place of its
// mark, while it has one. It must have been known by its mark before, and the
// segment stay mapped while there are calls of Peek. It is not called while they are.
func (p *Sign) Trust(s *Segment) error {
	line := (*lifeLine)(s.Ptr())
	if !line.lives() {
		return errNoLife
	}
	p.life = line
	return nil
}

// orphaned reports whether the holder has ended without Close.
func (l *lifeLine) orphaned() bool { return l.lock.Load()&holderGone != 0 }

// lives reports whether there is a holder.
func (l *lifeLine) lives() bool {
	v := l.lock.Load()
	return v != 0 && v&holderGone == 0
}
