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

// lowHalf returns the low half of a word, which the kernel compares.
func lowHalf(word *atomic.Uint64) unsafe.Pointer {
	if cpu.IsBigEndian {
		return unsafe.Add(unsafe.Pointer(word), 4)
	}
	return unsafe.Pointer(word)
}

// futexWait sleeps while the low half of the word is seen, until a wake-up or for limit. It may
// return early for any reason.
func futexWait(word *atomic.Uint64, seen uint32, limit time.Duration) {
	ts := unix.NsecToTimespec(int64(limit))
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(lowHalf(word)), futexWaitOp, uintptr(seen),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// futexWake wakes all sleepers on the word, in all processes.
func futexWake(word *atomic.Uint64) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(lowHalf(word)), futexWakeOp, wakeAll, 0, 0, 0)
}

// yield yields the CPU to another thread.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// sleepFor sleeps for d, which may be a few microseconds.
func sleepFor(d time.Duration) {
	minimizeTimerSlack()
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.Syscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// sleepOn sleeps for d, until a wake-up of the word, or not at all if the word is not seen.
func sleepOn(word *atomic.Uint64, seen uint32, d time.Duration) {
	minimizeTimerSlack()
	futexWait(word, seen, d)
}

// minimizeTimerSlack makes the sleeps of this thread exact. By default the kernel may extend a
// sleep by 50 microseconds.
func minimizeTimerSlack() { _, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1, 0) }
