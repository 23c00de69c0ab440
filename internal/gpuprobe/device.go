// Package gpuprobe gives the commands bench and doctor access to GPUs. It loads CUDA
// and NCCL, so that only programs that import it need these libraries.
package gpuprobe

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

// device is a rank's GPU.
type device struct {
	dev         *cuda.Device
	description string
}

// Open opens the GPU of local rank local. Ranks are assigned to GPUs round-robin. NCCL is loaded if
// withNCCL is set. After an error no device stays open.
func Open(local int, withNCCL bool) (bench.GPU, error) {
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
	return &device{dev, fmt.Sprintf("%s %d%s", name, dev.Ordinal(), version)}, nil
}

// Device returns the value for Config.Device.
func (c *device) Device() tutti.Device { return gpu.Device(c.dev.Ordinal()) }

// Description names the GPU and the version of NCCL.
func (c *device) Description() string { return c.description }

// Close releases the GPU.
func (c *device) Close() error { return c.dev.Close() }

// Alloc returns elements in device memory, with a copy in host memory. Push and Pull copy between
// the two and wait for the copy. The caller frees the memory before Close.
func (c *device) Alloc(t tutti.DType, n int) (*bench.Memory, error) {
	bytes := n * t.Size()
	mem, err := cuda.Alloc[uint8](c.dev, bytes)
	if err != nil {
		return nil, err
	}
	mirror := make([]byte, bytes)
	withPart := func(n int, f func(part *cuda.Slice[uint8]) error) error {
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
			return withPart(n, func(part *cuda.Slice[uint8]) error { return part.CopyFrom(mirror[:n]) })
		},
		Pull: func(n int) error {
			return withPart(n, func(part *cuda.Slice[uint8]) error { return part.CopyTo(mirror[:n]) })
		},
		Free: mem.Free,
	}, nil
}
