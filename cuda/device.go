package cuda

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/cudasys"
	"github.com/tutti-go/tutti/internal/dl"
)

// A Device is a GPU and its primary context, which all parts of the process share.
// It may be shared between goroutines.
type Device struct {
	drv     *cudasys.Driver
	ordinal int
	handle  uintptr    // the CUdevice
	ctx     uintptr    // the CUcontext
	bracket dl.Bracket // makes ctx current around a C call
	log     *slog.Logger
	cleanup runtime.Cleanup

	needsContext atomic.Bool // the driver needs a current context for stream calls; see withHandle

	mu     sync.Mutex
	closed bool // guarded by mu
	uses   int  // the open Device, and the objects made on it that still live; guarded by mu
}

// Open opens a device by its ordinal, from 0, and retains its primary context.
// Objects that become garbage without Free or Close are reported to log; nil means
// slog.Default. The caller closes the Device.
func Open(ordinal int, log *slog.Logger) (*Device, error) {
	drv, err := driver()
	if err != nil {
		return nil, err
	}
	n, err := drv.DeviceCount()
	if err != nil {
		return nil, public(err)
	}
	if ordinal < 0 || ordinal >= n {
		return nil, invalid("there is no device %d: there are %d, numbered from 0 (CUDA_VISIBLE_DEVICES may hide some)", ordinal, n)
	}
	handle, err := drv.Device(ordinal)
	if err != nil {
		return nil, public(err)
	}
	ctx, err := drv.PrimaryCtxRetain(handle)
	if err != nil {
		return nil, public(err)
	}
	if log == nil {
		log = slog.Default()
	}
	d := &Device{drv: drv, ordinal: ordinal, handle: handle, ctx: ctx, bracket: drv.Bracket(ctx), log: log, uses: 1}
	d.cleanup = watch(d, d, fmt.Sprintf("device %d", ordinal))
	return d, nil
}

// Close releases the primary context once all objects made on the device have ended
// too. No new objects can be made. Further calls of Close do nothing.
func (d *Device) Close() error {
	d.mu.Lock()
	was := d.closed
	d.closed = true
	d.mu.Unlock()
	if was {
		return nil
	}
	d.cleanup.Stop()
	return d.release()
}

// retain counts an object that is about to be made on the device.
func (d *Device) retain() error {
	if d == nil {
		return invalid("no device")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ended(d.String(), ErrClosed)
	}
	d.uses++
	return nil
}

// release ends one use. The last one releases the primary context.
func (d *Device) release() error {
	d.mu.Lock()
	d.uses--
	last := d.uses == 0
	d.mu.Unlock()
	if !last {
		return nil
	}
	return public(d.drv.PrimaryCtxRelease(d.handle))
}

// enter locks the goroutine to its thread and makes the device's context current.
// leave must follow on the same goroutine if enter returns nil.
func (d *Device) enter() error {
	runtime.LockOSThread()
	if err := d.drv.CtxPush(d.ctx); err != nil {
		runtime.UnlockOSThread()
		return public(err)
	}
	return nil
}

func (d *Device) leave() {
	// Popping the context that this thread has pushed cannot fail.
	_ = d.drv.CtxPop()
	runtime.UnlockOSThread()
}

// withHandle makes a driver call that takes a stream. Drivers find the context by the
// stream's handle, so no context is made current, which would cost as much as two more
// calls. If a driver refuses that, withHandle makes the context current from then on.
// The default streams have no context of their own and always need it.
func (d *Device) withHandle(stream uintptr, call func() error) error {
	if stream > lastDefaultStream && !d.needsContext.Load() {
		err := call()
		if err == nil {
			return nil
		}
		var e *cudasys.Error
		if !errors.As(err, &e) || e.Code != cudasys.ErrorInvalidContext {
			return public(err)
		}
		d.needsContext.Store(true)
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return public(call())
}

// lastDefaultStream is the greatest handle that means a default stream.
const lastDefaultStream = 2

// Do calls f on a thread on which the device's context is current. It is for calls
// into other libraries. The thread's previous context is current again when Do
// returns, also if f panics.
func (d *Device) Do(f func() error) error {
	if err := d.Enter(); err != nil {
		return err
	}
	defer d.Leave()
	return f()
}

// Enter is the first half of Do, for callers that must not allocate. It locks the
// goroutine to its thread and makes the context current. If it returns nil, Leave
// must follow on the same goroutine.
func (d *Device) Enter() error {
	if err := d.check(); err != nil {
		return err
	}
	return d.enter()
}

// check returns an error if the device is closed.
func (d *Device) check() error {
	if d == nil {
		return invalid("no device")
	}
	d.mu.Lock()
	gone := d.uses == 0
	d.mu.Unlock()
	if gone {
		return ended(d.String(), ErrClosed)
	}
	return nil
}

// Leave undoes Enter.
func (d *Device) Leave() { d.leave() }

// Around returns driver functions for calling another library from C, with the context
// current and without returning to Go in between: push(context) before the call, and
// pop(&x), with any pointer, after it. The caller keeps the context alive.
func (d *Device) Around() (push, context, pop uintptr) {
	return uintptr(d.bracket.Before), d.bracket.Arg, uintptr(d.bracket.After)
}

// Retain keeps the context alive until Release, even after Close. It is for packages
// that make objects on the device with other libraries.
func (d *Device) Retain() error { return d.retain() }

// Release ends one Retain.
func (d *Device) Release() error { return d.release() }

// Ordinal returns the device's number, from 0.
func (d *Device) Ordinal() int { return d.ordinal }

// Context returns the primary context, a CUcontext.
func (d *Device) Context() uintptr { return d.ctx }

// String returns "device" and the ordinal.
func (d *Device) String() string { return fmt.Sprintf("device %d", d.ordinal) }

// Name returns the device's name, such as "NVIDIA H200".
func (d *Device) Name() (string, error) {
	s, err := d.drv.DeviceName(d.handle)
	return s, public(err)
}

// PCIBusID returns the device's PCI address, such as "0000:01:00.0".
func (d *Device) PCIBusID() (string, error) {
	s, err := d.drv.DevicePCIBusID(d.handle)
	return s, public(err)
}

// UUID returns the device's identifier, which is the same in every process.
func (d *Device) UUID() ([16]byte, error) {
	id, err := d.drv.DeviceUUID(d.handle)
	return id, public(err)
}

// Capability returns the compute capability: 9 and 0 for an H200.
func (d *Device) Capability() (major, minor int, err error) {
	if major, err = d.drv.DeviceAttribute(cudasys.AttrMajor, d.handle); err != nil {
		return 0, 0, public(err)
	}
	minor, err = d.drv.DeviceAttribute(cudasys.AttrMinor, d.handle)
	return major, minor, public(err)
}

// Memory returns the device's free and total memory, in bytes.
func (d *Device) Memory() (free, total uint64, err error) {
	if err := d.Enter(); err != nil {
		return 0, 0, err
	}
	defer d.Leave()
	free, total, err = d.drv.MemInfo()
	return free, total, public(err)
}

// Synchronize waits for all work in the device's context.
func (d *Device) Synchronize() error {
	if err := d.Enter(); err != nil {
		return err
	}
	defer d.Leave()
	return public(d.drv.CtxSynchronize())
}

// CanAccess reports whether the device can access the memory of peer directly.
func (d *Device) CanAccess(peer *Device) (bool, error) {
	if peer == nil {
		return false, invalid("no device")
	}
	can, err := d.drv.CanAccessPeer(d.handle, peer.handle)
	return can, public(err)
}

// EnableAccess lets the device access the memory of peer directly. It does nothing if
// access is enabled already.
func (d *Device) EnableAccess(peer *Device) error { return d.setAccess(peer, true) }

// DisableAccess undoes EnableAccess. It does nothing if access is not enabled.
func (d *Device) DisableAccess(peer *Device) error { return d.setAccess(peer, false) }

// setAccess lets kernels on d access the memory of peer, or ends that. Access that is already as requested is
// no error.
func (d *Device) setAccess(peer *Device, on bool) error {
	if peer == nil || peer.handle == d.handle {
		return invalid("peer access needs two different devices")
	}
	if err := d.Enter(); err != nil {
		return err
	}
	defer d.Leave()
	var err error
	if on {
		err = d.drv.EnablePeerAccess(peer.ctx)
	} else {
		err = d.drv.DisablePeerAccess(peer.ctx)
	}
	var e *cudasys.Error
	if errors.As(err, &e) && (e.Code == cudasys.ErrorPeerAccessEnabled || e.Code == cudasys.ErrorPeerAccessNotEnabled) {
		return nil
	}
	return public(err)
}
