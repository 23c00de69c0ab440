package cudasys

import (
	"bytes"
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
)

// Attributes of devices.
const (
	AttrMajor = 75
	AttrMinor = 76
)

// Init initialises the driver. It may be called often.
func (d *Driver) Init() error { return d.simple(fnInit, 0) }

// Version returns the newest version of CUDA that the driver supports, as
// 1000*major + 10*minor.
func (d *Driver) Version() (int, error) {
	v, err := d.made(fnDriverGetVersion)
	return int(v), err
}

// DeviceCount returns the number of devices.
func (d *Driver) DeviceCount() (int, error) {
	n, err := d.made(fnDeviceGetCount)
	return int(n), err
}

// Device returns the handle of the i-th device.
func (d *Driver) Device(i int) (uintptr, error) { return d.made(fnDeviceGet, uintptr(i)) }

// DeviceName returns a device's name.
func (d *Driver) DeviceName(dev uintptr) (string, error) { return d.deviceText(fnDeviceGetName, dev) }

// DevicePCIBusID returns a device's address, such as 0000:01:00.0.
func (d *Driver) DevicePCIBusID(dev uintptr) (string, error) {
	return d.deviceText(fnDeviceGetPCIBusId, dev)
}

func (d *Driver) deviceText(fn int, dev uintptr) (string, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	buf := make([]byte, 256)
	err := d.call(fr, fn, fr.Hold(0, unsafe.Pointer(&buf[0])), uintptr(len(buf)-1), dev)
	text, _, _ := bytes.Cut(buf, []byte{0})
	return string(text), err
}

// DeviceUUID returns a device's identity.
func (d *Driver) DeviceUUID(dev uintptr) ([16]byte, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	id := new([16]byte)
	err := d.call(fr, fnDeviceGetUuid, fr.Hold(0, unsafe.Pointer(id)), dev)
	return *id, err
}

// DeviceAttribute returns one of the attributes.
func (d *Driver) DeviceAttribute(attribute int, dev uintptr) (int, error) {
	n, err := d.made(fnDeviceGetAttribute, uintptr(attribute), dev)
	return int(int32(n)), err
}

// CanAccessPeer reports whether dev can reach peer's memory.
func (d *Driver) CanAccessPeer(dev, peer uintptr) (bool, error) {
	n, err := d.made(fnDeviceCanAccessPeer, dev, peer)
	return int32(n) != 0, err
}

// PrimaryCtxRetain returns a device's primary context, and counts one more use.
func (d *Driver) PrimaryCtxRetain(dev uintptr) (uintptr, error) {
	return d.made(fnDevicePrimaryCtxRetain, dev)
}

// PrimaryCtxRelease ends one use of a device's primary context.
func (d *Driver) PrimaryCtxRelease(dev uintptr) error {
	return d.simple(fnDevicePrimaryCtxRelease, dev)
}

// CtxPush makes a context the thread's current one.
func (d *Driver) CtxPush(ctx uintptr) error { return d.simple(fnCtxPushCurrent, ctx) }

// Bracket is CtxPush and CtxPop around a call.
func (d *Driver) Bracket(ctx uintptr) dl.Bracket {
	return dl.Bracket{Before: d.fn[fnCtxPushCurrent], Arg: ctx, After: d.fn[fnCtxPopCurrent]}
}

// CtxPop makes the context before the current one current again.
func (d *Driver) CtxPop() error {
	_, err := d.made(fnCtxPopCurrent)
	return err
}

// CtxCurrent returns the thread's current context, 0 if it has none.
func (d *Driver) CtxCurrent() (uintptr, error) { return d.made(fnCtxGetCurrent) }

// CtxSynchronize waits for all that the current context has to do.
func (d *Driver) CtxSynchronize() error { return d.simple(fnCtxSynchronize) }

// EnablePeerAccess lets the current context reach peer's memory.
func (d *Driver) EnablePeerAccess(peer uintptr) error {
	return d.simple(fnCtxEnablePeerAccess, peer, 0)
}

// DisablePeerAccess ends what EnablePeerAccess began.
func (d *Driver) DisablePeerAccess(peer uintptr) error {
	return d.simple(fnCtxDisablePeerAccess, peer)
}
