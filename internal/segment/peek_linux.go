package segment

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peek copies n bytes at an address of another process into this one's memory.
// The system allows it between processes of one user, unless it was told not to.
func Peek(pid int, dst unsafe.Pointer, addr uint64, n int) error {
	for done := 0; done < n; {
		local := unix.Iovec{Base: (*byte)(unsafe.Add(dst, done))}
		local.SetLen(n - done)
		remote := unix.RemoteIovec{Base: uintptr(addr) + uintptr(done), Len: n - done}
		got, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
		if err != nil {
			return err
		}
		if got == 0 {
			return unix.EFAULT
		}
		done += got
	}
	return nil
}
