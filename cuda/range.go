package cuda

import (
	"github.com/tutti-go/tutti/internal/cudasys"
)

// Holds returns an error if the driver knows that the bytes at an address are
// not all on this device, or not all of one allocation.
func (d *Device) Holds(ptr, bytes uintptr) error {
	if err := d.check(); err != nil {
		return err
	}
	if ptr == 0 {
		return invalid("no memory is at address 0")
	}
	// Unlike questions one by one, this costs little more than a call.
	p, err := d.drv.Place(&d.around, ptr)
	switch {
	case err != nil:
		return public(err)
	case p.Kind == 0:
		return invalid("address %#x is not one of a device's memory", ptr)
	case p.Kind == cudasys.MemoryTypeDevice && int(p.Device) != d.ordinal:
		return invalid("the memory at %#x is on device %d, not on %v", ptr, p.Device, d)
	case p.Size != 0 && uint64(ptr)-p.Start+uint64(bytes) > p.Size:
		return invalid("the memory at %#x has %d bytes, not %d", ptr, p.Size-(uint64(ptr)-p.Start), bytes)
	}
	return nil
}
