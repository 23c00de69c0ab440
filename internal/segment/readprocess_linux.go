package segment

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadProcess copies n bytes at an address of process p to dst. By default the system allows this
// between processes of one user. ReadProcess checks that the process with p's PID is p. The error
// is ESRCH if and only if p has exited or left. Any other error means that the system refuses to
// read this memory; a part may have been copied. ReadProcess uses raw system calls: notifying the
// Go scheduler costs more than it gains for calls of a few microseconds.
func ReadProcess(p *ProcessIdentity, dst unsafe.Pointer, addr uint64, n int) error {
	if p.liveness == nil || !p.liveness.held() {
		return readChecked(p, dst, addr, n)
	}
	// While the Liveness is held, the PID belongs to p, so the nonce need not be read.
	for done := 0; done < n; {
		local := unix.Iovec{Base: (*byte)(unsafe.Add(dst, done))}
		local.SetLen(n - done)
		remote := unix.RemoteIovec{Base: uintptr(addr) + uintptr(done), Len: n - done}
		got, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(p.PID),
			uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
		switch {
		case !p.liveness.held(): // another process may have been read
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

// readChecked is ReadProcess with a check of the nonce, which reads additional pages.
func readChecked(p *ProcessIdentity, dst unsafe.Pointer, addr uint64, n int) error {
	err := readWithNonce(p, dst, addr, n)
	if err != nil && p.liveness != nil && p.liveness.ownerDied() {
		return unix.ESRCH // another process may have the PID now
	}
	return err
}

// readWithNonce reads the nonce with every part of the data. If the nonce differs, another process
// has the PID, and the error is ESRCH.
func readWithNonce(p *ProcessIdentity, dst unsafe.Pointer, addr uint64, n int) error {
	for done := 0; done < n; {
		var seen [nonceBytes]byte
		local := [2]unix.Iovec{{Base: &seen[0]}, {Base: (*byte)(unsafe.Add(dst, done))}}
		local[0].SetLen(len(seen))
		local[1].SetLen(n - done)
		// One call reads both ranges from the same process.
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
