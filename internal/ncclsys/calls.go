package ncclsys

import (
	"runtime"
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
)

// Native reports whether the library has ncclAlltoAll, ncclGather and ncclScatter.
func (l *Library) Native() bool { return l.has(fnAlltoAll) && l.has(fnGather) && l.has(fnScatter) }

// AllReduce and the calls below enqueue an operation on a stream. Counts are in elements;
// types and operators are NCCL's numbers. in makes the device's context current, unless it
// is nil, or records the call if it holds calls.
func (l *Library) AllReduce(in *Around, send, recv uintptr, n, dtype, op int, comm, stream uintptr) error {
	return l.enqueue(in, fnAllReduce, &dl.Args{send, recv, uintptr(n), uintptr(dtype), uintptr(op), comm, stream})
}

// Reduce reduces to the root.
func (l *Library) Reduce(in *Around, send, recv uintptr, n, dtype, op, root int, comm, stream uintptr) error {
	return l.enqueue(in, fnReduce, &dl.Args{send, recv, uintptr(n), uintptr(dtype), uintptr(op), uintptr(root), comm, stream})
}

// Broadcast copies from the root.
func (l *Library) Broadcast(in *Around, send, recv uintptr, n, dtype, root int, comm, stream uintptr) error {
	return l.enqueue(in, fnBroadcast, &dl.Args{send, recv, uintptr(n), uintptr(dtype), uintptr(root), comm, stream})
}

// AllGather gathers n elements of every rank.
func (l *Library) AllGather(in *Around, send, recv uintptr, n, dtype int, comm, stream uintptr) error {
	return l.enqueue(in, fnAllGather, &dl.Args{send, recv, uintptr(n), uintptr(dtype), comm, stream})
}

// ReduceScatter reduces, and scatters n elements to every rank.
func (l *Library) ReduceScatter(in *Around, send, recv uintptr, n, dtype, op int, comm, stream uintptr) error {
	return l.enqueue(in, fnReduceScatter, &dl.Args{send, recv, uintptr(n), uintptr(dtype), uintptr(op), comm, stream})
}

// AllToAll exchanges n elements between all ranks.
func (l *Library) AllToAll(in *Around, send, recv uintptr, n, dtype int, comm, stream uintptr) error {
	return l.enqueue(in, fnAlltoAll, &dl.Args{send, recv, uintptr(n), uintptr(dtype), comm, stream})
}

// Gather gathers n elements of every rank on the root.
func (l *Library) Gather(in *Around, send, recv uintptr, n, dtype, root int, comm, stream uintptr) error {
	return l.enqueue(in, fnGather, &dl.Args{send, recv, uintptr(n), uintptr(dtype), uintptr(root), comm, stream})
}

// Scatter scatters n elements from the root to every rank.
func (l *Library) Scatter(in *Around, send, recv uintptr, n, dtype, root int, comm, stream uintptr) error {
	return l.enqueue(in, fnScatter, &dl.Args{send, recv, uintptr(n), uintptr(dtype), uintptr(root), comm, stream})
}

// Send sends to a rank, which must receive as many elements.
func (l *Library) Send(in *Around, send uintptr, n, dtype, peer int, comm, stream uintptr) error {
	return l.enqueue(in, fnSend, &dl.Args{send, uintptr(n), uintptr(dtype), uintptr(peer), comm, stream})
}

// Recv receives from a rank.
func (l *Library) Recv(in *Around, recv uintptr, n, dtype, peer int, comm, stream uintptr) error {
	return l.enqueue(in, fnRecv, &dl.Args{recv, uintptr(n), uintptr(dtype), uintptr(peer), comm, stream})
}

// PutSignal writes to a rank's window and signals it.
func (l *Library) PutSignal(local uintptr, n, dtype, peer int, window uintptr, offset int, comm, stream uintptr) error {
	return l.simple(fnPutSignal, local, uintptr(n), uintptr(dtype), uintptr(peer), window, uintptr(offset), 0, 0, 0, comm, stream)
}

// Signal signals a rank.
func (l *Library) Signal(peer int, comm, stream uintptr) error {
	return l.simple(fnSignal, uintptr(peer), 0, 0, 0, comm, stream)
}

// A WaitSignalDesc is ncclWaitSignalDesc_t: how many signals to wait for, and from which rank.
type WaitSignalDesc struct{ Count, Peer, Index, Ctx int32 }

// WaitSignal makes a stream wait for signals.
func (l *Library) WaitSignal(descs []WaitSignalDesc, comm, stream uintptr) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return l.call(fr, fnWaitSignal, uintptr(len(descs)), fr.Hold(0, unsafe.Pointer(unsafe.SliceData(descs))), comm, stream)
}

// GroupStart begins a group on this thread.
func (l *Library) GroupStart() error { return l.simple(fnGroupStart) }

// GroupEnd launches this thread's group.
func (l *Library) GroupEnd() error { return l.simple(fnGroupEnd) }

// GroupSpoil makes the end of this thread's group fail without launching anything. NCCL
// remembers the first error in a group, and a call without a communicator is an error.
func (l *Library) GroupSpoil() { _ = l.AllReduce(nil, 0, 0, 0, 0, 0, 0, 0) }

// simInfo is ncclSimInfo_t.
type simInfo struct {
	size           uintptr
	magic, version uint32
	estimated      float32
}

// GroupSimulateEnd ends this thread's group without launching it. It returns NCCL's estimate
// in microseconds.
func (l *Library) GroupSimulateEnd() (float32, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	info := &simInfo{magic: 0x74685283, version: 22200, estimated: -1}
	info.size = unsafe.Sizeof(*info)
	err := l.call(fr, fnGroupSimulateEnd, fr.Hold(0, unsafe.Pointer(info)))
	return info.estimated, err
}

// RedOpCreate makes an operator that multiplies by a factor and adds. The factor is in device
// memory at addr, or, if addr is 0, in value.
func (l *Library) RedOpCreate(value *[8]byte, addr uintptr, dtype int, comm uintptr) (int, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	onHost := uintptr(0)
	if addr == 0 {
		addr, onHost = fr.Hold(0, unsafe.Pointer(value)), 1
	}
	err := l.call(fr, fnRedOpCreatePreMulSum, fr.Out(0), addr, uintptr(dtype), onHost, comm)
	return int(int32(fr.Result(0))), err
}

// RedOpDestroy destroys an operator.
func (l *Library) RedOpDestroy(op int, comm uintptr) error {
	return l.simple(fnRedOpDestroy, uintptr(op), comm)
}

// MemAlloc allocates device memory with ncclMemAlloc.
func (l *Library) MemAlloc(bytes uintptr) (uintptr, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err := l.call(fr, fnMemAlloc, fr.Out(0), bytes)
	return uintptr(fr.Result(0)), err
}

// MemFree frees what MemAlloc allocated.
func (l *Library) MemFree(ptr uintptr) error { return l.simple(fnMemFree, ptr) }

// CommRegister registers memory, which NCCL then uses without copies.
func (l *Library) CommRegister(comm, ptr, bytes uintptr) (uintptr, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err := l.call(fr, fnCommRegister, comm, ptr, bytes, fr.Out(0))
	return uintptr(fr.Result(0)), err
}

// CommDeregister ends a registration.
func (l *Library) CommDeregister(comm, handle uintptr) error {
	return l.simple(fnCommDeregister, comm, handle)
}

// CommWindowRegister registers memory of all ranks as a window. NCCL may write the handle
// after the call has returned.
func (l *Library) CommWindowRegister(comm, ptr, bytes uintptr, out *Slot, flags int) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return l.call(fr, fnCommWindowRegister, comm, ptr, bytes, fr.Hold(0, unsafe.Pointer(out)), uintptr(flags))
}

// CommWindowDeregister ends the registration of a window.
func (l *Library) CommWindowDeregister(comm, window uintptr) error {
	return l.simple(fnCommWindowDeregister, comm, window)
}

// WinGetUserPtr returns the address that a window was registered with.
func (l *Library) WinGetUserPtr(comm, window uintptr) (uintptr, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err := l.call(fr, fnWinGetUserPtr, comm, window, fr.Out(0))
	return uintptr(fr.Result(0)), err
}

// Param returns the value of an NCCL parameter, as text.
func (l *Library) Param(key string) (string, error) {
	runtime.LockOSThread() // the text is valid until the thread's next call
	defer runtime.UnlockOSThread()
	fr := dl.NewFrame()
	defer fr.Done()
	name := dl.CString(key)
	err := l.call(fr, fnParamGetParameter, fr.Hold(0, unsafe.Pointer(&name[0])), fr.Out(0), fr.Out(1))
	if err != nil {
		return "", err
	}
	return dl.String(uintptr(fr.Result(0))), nil
}
