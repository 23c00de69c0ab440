package cudasys

import (
	"bytes"
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
)

// Device attributes: the two parts of the compute capability.
const (
	AttrMajor = 75
	AttrMinor = 76
)

// Init initialises the driver. Further calls do nothing.
func (d *Driver) Init() error { return d.simple(fnInit, 0) }

// Version returns the latest CUDA version that the driver supports, as
// 1000*major + 10*minor.
func (d *Driver) Version() (int, error) {
	v, err := d.out1(fnDriverGetVersion)
	return int(v), err
}

// DeviceCount returns the number of devices.
func (d *Driver) DeviceCount() (int, error) {
	n, err := d.out1(fnDeviceGetCount)
	return int(n), err
}

// Device returns the handle of the i-th device.
func (d *Driver) Device(i int) (uintptr, error) { return d.out1(fnDeviceGet, uintptr(i)) }

// DeviceName returns a device's name.
func (d *Driver) DeviceName(dev uintptr) (string, error) { return d.deviceText(fnDeviceGetName, dev) }

// DevicePCIBusID returns a device's PCI address, such as "0000:01:00.0".
func (d *Driver) DevicePCIBusID(dev uintptr) (string, error) {
	return d.deviceText(fnDeviceGetPCIBusId, dev)
}

// deviceText calls a function that writes a string about a device.
func (d *Driver) deviceText(fn int, dev uintptr) (string, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	buf := make([]byte, 256)
	err := d.call(fr, fn, fr.Hold(0, unsafe.Pointer(&buf[0])), uintptr(len(buf)-1), dev)
	text, _, _ := bytes.Cut(buf, []byte{0})
	return string(text), err
}

// DeviceUUID returns a device's identifier.
func (d *Driver) DeviceUUID(dev uintptr) ([16]byte, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	id := new([16]byte)
	err := d.call(fr, fnDeviceGetUuid, fr.Hold(0, unsafe.Pointer(id)), dev)
	return *id, err
}

// DeviceAttribute returns the value of a device attribute.
func (d *Driver) DeviceAttribute(attribute int, dev uintptr) (int, error) {
	n, err := d.out1(fnDeviceGetAttribute, uintptr(attribute), dev)
	return int(int32(n)), err
}

// CanAccessPeer reports whether dev can access peer's memory directly.
func (d *Driver) CanAccessPeer(dev, peer uintptr) (bool, error) {
	n, err := d.out1(fnDeviceCanAccessPeer, dev, peer)
	return int32(n) != 0, err
}

// PrimaryCtxRetain returns a device's primary context and retains it.
func (d *Driver) PrimaryCtxRetain(dev uintptr) (uintptr, error) {
	return d.out1(fnDevicePrimaryCtxRetain, dev)
}

// PrimaryCtxRelease releases a device's primary context.
func (d *Driver) PrimaryCtxRelease(dev uintptr) error {
	return d.simple(fnDevicePrimaryCtxRelease, dev)
}

// CtxPush makes a context current on the thread.
func (d *Driver) CtxPush(ctx uintptr) error { return d.simple(fnCtxPushCurrent, ctx) }

// Bracket returns a bracket that makes a context current around a C call.
func (d *Driver) Bracket(ctx uintptr) dl.Bracket {
	return dl.Bracket{Before: d.fn[fnCtxPushCurrent], Arg: ctx, After: d.fn[fnCtxPopCurrent]}
}

// CtxPop makes the previous context current again.
func (d *Driver) CtxPop() error {
	_, err := d.out1(fnCtxPopCurrent)
	return err
}

// CtxCurrent returns the thread's current context, 0 if there is none.
func (d *Driver) CtxCurrent() (uintptr, error) { return d.out1(fnCtxGetCurrent) }

// CtxSynchronize waits for all work in the current context.
func (d *Driver) CtxSynchronize() error { return d.simple(fnCtxSynchronize) }

// EnablePeerAccess lets the current context access peer's memory.
func (d *Driver) EnablePeerAccess(peer uintptr) error {
	return d.simple(fnCtxEnablePeerAccess, peer, 0)
}

// DisablePeerAccess undoes EnablePeerAccess.
func (d *Driver) DisablePeerAccess(peer uintptr) error {
	return d.simple(fnCtxDisablePeerAccess, peer)
}
