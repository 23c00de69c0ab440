package cuda

import (
	"github.com/tutti-go/tutti/internal/cudasys"
)

// Holds returns nil if the bytes at ptr lie in one allocation on this device, or if the
// driver does not know their allocation.
func (d *Device) Holds(ptr, bytes uintptr) error {
	if err := d.check(); err != nil {
		return err
	}
	if ptr == 0 {
		return invalid("no memory is at address 0")
	}
	// One query for all attributes costs little more than a query for one.
	p, err := d.drv.Place(&d.bracket, ptr)
	switch {
	case err != nil:
		return public(err)
	case p.Kind == 0:
		return invalid("address %#x is not in device memory", ptr)
	case p.Kind == cudasys.MemoryTypeDevice && int(p.Device) != d.ordinal:
		return invalid("the memory at %#x is on device %d, not on %v", ptr, p.Device, d)
	case p.Size != 0 && uint64(ptr)-p.Start+uint64(bytes) > p.Size:
		return invalid("the memory at %#x has %d bytes, not %d", ptr, p.Size-(uint64(ptr)-p.Start), bytes)
	}
	return nil
}
