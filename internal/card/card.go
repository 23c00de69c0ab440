// Package card gives package bench the GPU: it loads libraries, which programs that
// do not import it need not have.
package card

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/dl"
	"github.com/tutti-go/tutti/nccl"
)

// card is a rank's GPU.
type card struct {
	dev   *cuda.Device
	about string
}

// Open opens the GPU of the local-th rank of a host: ranks have them in turn. NCCL
// is loaded if it is needed.
func Open(local int, withNCCL bool) (bench.Card, error) {
	n, err := cuda.Devices()
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("there is no GPU")
	}
	version := ""
	if withNCCL {
		lib, err := nccl.Load("")
		if err != nil {
			return nil, err
		}
		version = ", NCCL " + lib.Version().String()
	}
	dev, err := cuda.Open(local%n, nil)
	if err != nil {
		return nil, err
	}
	name, err := dev.Name()
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return &card{dev, fmt.Sprintf("%s %d%s", name, dev.Ordinal(), version)}, nil
}

// Device is for Config.Device.
func (c *card) Device() tutti.Device { return gpu.Device(c.dev.Ordinal()) }

// About names the GPU and the NCCL.
func (c *card) About() string { return c.about }

// Close gives the GPU back.
func (c *card) Close() error { return c.dev.Close() }

// Alloc returns elements in the GPU's memory, and a copy of them in the host's.
func (c *card) Alloc(t tutti.DType, n int) (*bench.Memory, error) {
	bytes := n * t.Size()
	mem, err := cuda.Alloc[uint8](c.dev, bytes)
	if err != nil {
		return nil, err
	}
	mirror := make([]byte, bytes)
	some := func(n int, f func(part *cuda.Slice[uint8]) error) error {
		part, err := mem.Slice(0, n)
		if err != nil {
			return err
		}
		return f(part)
	}
	return &bench.Memory{
		Buf:   tutti.DeviceBuffer(c.dev.Ordinal(), dl.Pointer(mem.Pointer()), t, n),
		Bytes: mirror,
		Push: func(n int) error {
			return some(n, func(part *cuda.Slice[uint8]) error { return part.CopyFrom(mirror[:n]) })
		},
		Pull: func(n int) error {
			return some(n, func(part *cuda.Slice[uint8]) error { return part.CopyTo(mirror[:n]) })
		},
		Free: mem.Free,
	}, nil
}
