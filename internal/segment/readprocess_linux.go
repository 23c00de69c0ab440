package segment

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peek copies n bytes at an address of another process into this one's memory.
// The system allows it between processes of one user, unless it was told not to.
// Another process may have the number by now: what has no such sign is not read. The
// error is ESRCH if the process has ended or left, and only then: any other says that the
// system refuses to read this memory, of which a part may have been copied. The
// scheduler is not told: that costs more than it helps for what a few calls of some
// microseconds copy.
func ReadProcess(p *ProcessIdentity, dst unsafe.Pointer, addr uint64, n int) error {
	if p.liveness == nil || !p.liveness.held() {
		return readChecked(p, dst, addr, n)
	}
	for done := 0; done < n; {
		local := unix.Iovec{Base: (*byte)(unsafe.Add(dst, done))}
		local.SetLen(n - done)
		remote := unix.RemoteIovec{Base: uintptr(addr) + uintptr(done), Len: n - done}
		got, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(p.PID),
			uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
		switch {
		case !p.liveness.held(): // so that what has been read may be another's
			return readChecked(p, dst, addr, n)
		case errno != 0:
			return errno
		case got == 0:
			return unix.EFAULT
		}
		done += int(got)
	}
	return nil
}

// peekMarked is Peek that reads the mark as well, which takes longer by some pages.
func readChecked(p *ProcessIdentity, dst unsafe.Pointer, addr uint64, n int) error {
	err := readWithNonce(p, dst, addr, n)
	if err != nil && p.liveness != nil && p.liveness.ownerDied() {
		return unix.ESRCH // whatever the process is like that has the number now
	}
	return err
}

func readWithNonce(p *ProcessIdentity, dst unsafe.Pointer, addr uint64, n int) error {
	for done := 0; done < n; {
		var seen [nonceBytes]byte
		local := [2]unix.Iovec{{Base: &seen[0]}, {Base: (*byte)(unsafe.Add(dst, done))}}
		local[0].SetLen(len(seen))
		local[1].SetLen(n - done)
		// Both are of one process: the system looks it up once for a call.
		remote := [2]unix.RemoteIovec{
			{Base: uintptr(p.Addr), Len: len(seen)}, {Base: uintptr(addr) + uintptr(done), Len: n - done},
		}
		got, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(p.PID),
			uintptr(unsafe.Pointer(&local)), 2, uintptr(unsafe.Pointer(&remote)), 2, 0)
		switch {
		case errno != 0:
			return errno
		case int(got) < len(seen):
			return unix.EFAULT
		case string(seen[:]) != string(p.Nonce):
			return unix.ESRCH
		case int(got) == len(seen):
			return unix.EFAULT
		}
		done += int(got) - len(seen)
	}
	return nil
}
