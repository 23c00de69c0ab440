package segment

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Life is how others see, without a call of the system, that this process has not
// ended: a thread of it holds a lock in memory that they share, and the system
// notes there, however the process ends, that the holder is gone. It does so before
// the process's number can become another's.
type Liveness struct {
	release, released chan struct{}
}

// Live begins a Life in memory of this process that others map: LifeBytes that are used for
// nothing else. It is closed before the memory is unmapped.
func NewLiveness(p unsafe.Pointer) (*Liveness, error) {
	l := &Liveness{make(chan struct{}), make(chan struct{})}
	started := make(chan error)
	go l.hold((*robustList)(p), started)
	if err := <-started; err != nil {
		return nil, err
	}
	return l, nil
}

// hold has a thread hold the lock until the end.
func (l *Liveness) hold(list *robustList, started chan<- error) {
	defer close(l.released)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A program that contains C may have given the thread a list already.
	var previous, size uintptr
	_, _, errno := unix.RawSyscall(unix.SYS_GET_ROBUST_LIST, 0, uintptr(unsafe.Pointer(&previous)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		started <- fmt.Errorf("segment: get_robust_list: %w", errno)
		return
	}
	base := uintptr(unsafe.Pointer(list))
	list.first = base + unsafe.Offsetof(list.next)
	list.next = base
	list.offset = int64(unsafe.Offsetof(list.lock) - unsafe.Offsetof(list.next))
	const bytes = unsafe.Offsetof(list.next)
	if _, _, errno := unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, base, bytes, 0); errno != 0 {
		started <- fmt.Errorf("segment: set_robust_list: %w", errno)
		return
	}
	list.lock.Store(uint32(unix.Gettid()))
	started <- nil
	<-l.release
	list.lock.Store(0)
	_, _, _ = unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, previous, bytes, 0)
}

// Close ends it: others do not see any more whether the process lives.
func (l *Liveness) Close() {
	close(l.release)
	<-l.released
}
