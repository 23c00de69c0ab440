package wait

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

const (
	futexWaitOp = 0
	futexWakeOp = 1
	wakeAll     = 1 << 30
)

// low is the half of a word that changes most: what the kernel compares.
func lowHalf(word *atomic.Uint64) unsafe.Pointer {
	if cpu.IsBigEndian {
		return unsafe.Add(unsafe.Pointer(word), 4)
	}
	return unsafe.Pointer(word)
}

// futexWait sleeps while the word's low half is seen, until it is woken, or
// until the time is over. It may return early for any reason.
func futexWait(word *atomic.Uint64, seen uint32, limit time.Duration) {
	ts := unix.NsecToTimespec(int64(limit))
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(lowHalf(word)), futexWaitOp, uintptr(seen),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// futexWake wakes all who sleep on the word, in any process.
func futexWake(word *atomic.Uint64) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(lowHalf(word)), futexWakeOp, wakeAll, 0, 0, 0)
}

// yield gives the processor to another process.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// nap sleeps for a time that may be a few microseconds.
func sleepFor(d time.Duration) {
	minimizeTimerSlack()
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.Syscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// napOn is nap, and ends also when the word is woken, or has changed before.
func sleepOn(word *atomic.Uint64, seen uint32, d time.Duration) {
	minimizeTimerSlack()
	futexWait(word, seen, d)
}

// prompt asks the system, which may let a thread sleep for 50 microseconds more than it
// wants, not to do that to this one.
func minimizeTimerSlack() { _, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1, 0) }
