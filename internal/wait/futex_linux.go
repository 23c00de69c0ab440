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

// A futexWaiter is struct futex_waitv of the system call futex_waitv.
type futexWaiter struct {
	val      uint64
	addr     uint64
	flags    uint32
	reserved uint32
}

const (
	futexWaitv = 449 // number of the system call on all architectures
	futex32    = 2   // the flag FUTEX_32
	maxWords   = 128 // that futex_waitv accepts
	// maxBlindSleep bounds a sleep that not every word can end.
	maxBlindSleep = time.Millisecond
)

// Sleep sleeps until one of the words differs from its value at Add, until a wake-up, or for limit.
// It may return early for any reason. A kernel without futex_waitv sleeps on the first word only.
func (l *Words) Sleep(limit time.Duration) {
	if len(l.words) == 1 {
		futexWait(l.words[0], l.seen[0], limit)
		return
	}
	n := min(len(l.words), maxWords)
	if n < len(l.words) {
		limit = min(limit, maxBlindSleep)
	}
	l.waits = l.waits[:0]
	for i, word := range l.words[:n] {
		l.waits = append(l.waits, futexWaiter{val: uint64(l.seen[i]), addr: uint64(uintptr(lowHalf(word))), flags: futex32})
	}
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) == nil {
		ts = unix.NsecToTimespec(ts.Nano() + int64(limit))
		_, _, errno := unix.Syscall6(futexWaitv, uintptr(unsafe.Pointer(&l.waits[0])), uintptr(n), 0,
			uintptr(unsafe.Pointer(&ts)), unix.CLOCK_MONOTONIC, 0)
		if errno != unix.ENOSYS && errno != unix.EPERM && errno != unix.EINVAL {
			return
		}
	}
	futexWait(l.words[0], l.seen[0], min(limit, maxBlindSleep))
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
