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
type Life struct {
	end, ended chan struct{}
}

// Live begins a Life in memory of this process that others map: LifeBytes that are used for
// nothing else. It is closed before the memory is unmapped.
func Live(p unsafe.Pointer) (*Life, error) {
	l := &Life{make(chan struct{}), make(chan struct{})}
	begun := make(chan error)
	go l.hold((*lifeLine)(p), begun)
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
