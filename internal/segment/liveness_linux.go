package segment

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Liveness shows other processes, without system calls, that this process has not exited. One of
// its threads owns a robust futex in shared memory. However the process ends, the kernel marks the
// futex before it reuses the PID.
type Liveness struct {
	release, released chan struct{}
}

// NewLiveness begins a Liveness in p: LivenessBytes of shared memory that are used for nothing
// else. It must be closed before the memory is unmapped.
func NewLiveness(p unsafe.Pointer) (*Liveness, error) {
	l := &Liveness{make(chan struct{}), make(chan struct{})}
	started := make(chan error)
	go l.hold((*robustList)(p), started)
	if err := <-started; err != nil {
		return nil, err
	}
	return l, nil
}

// hold locks a thread to this goroutine and owns the futex until release is closed.
func (l *Liveness) hold(list *robustList, started chan<- error) {
	defer close(l.released)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The C library may have registered a list for this thread.
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

// Close ends the Liveness. Other processes do not see any more whether this process runs.
func (l *Liveness) Close() {
	close(l.release)
	<-l.released
}
