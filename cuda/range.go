package cuda

import (
	"errors"

	"github.com/tutti-go/tutti/internal/cudasys"
)

// holds is Holds with the context current. What the driver does not know, it
// lets pass.
func (d *Device) holds(ptr, bytes uintptr) error {
	if ptr == 0 {
		return invalid("no memory is at address 0")
	}
	at, err := d.drv.PointerAttribute(cudasys.PointerDevice, ptr)
	if err != nil {
		var e *cudasys.Error
		if errors.As(err, &e) && e.Code == cudasys.ErrorInvalidValue {
			return invalid("address %#x is not one of a device's memory", ptr)
		}
		return public(err)
	}
	kind, err := d.drv.PointerAttribute(cudasys.PointerMemoryType, ptr)
	if err != nil {
		return public(err)
	}
	if uint32(kind) == cudasys.MemoryTypeDevice && int(int32(at)) != d.ordinal {
		return invalid("the memory at %#x is on device %d, not on %v", ptr, int32(at), d)
	}
	start, err := d.drv.PointerAttribute(cudasys.PointerRangeStart, ptr)
	if err != nil {
		return nil
	}
	size, err := d.drv.PointerAttribute(cudasys.PointerRangeSize, ptr)
	if err == nil && uint64(ptr)-start+uint64(bytes) > size {
		return invalid("the memory at %#x has %d bytes, not %d", ptr, size-(uint64(ptr)-start), bytes)
	}
	return nil
}
