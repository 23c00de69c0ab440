// Package gpu adds a GPU to a tutti.Comm. NCCL performs the operations on memory of the
// rank's GPU; operations on host memory work as without a GPU.
//
//	comm, err := tutti.Join(ctx, tutti.Config{Device: gpu.Auto()})
//	err = comm.AllReduce(ctx, gpu.Of(gradients), tutti.Avg) // a *cuda.Slice
//
// NCCL and the CUDA driver are loaded when the Comm is made. If one is missing, the
// error lists the paths that were tried.
//
// A blocking method returns when the operation on the GPU is complete. It does not wait
// for other streams: synchronize a stream that still writes the memory first, or order
// the operation after it with Batch.On. On one device, all ranks must start the operations
// of different Comms in the same order; otherwise NCCL can deadlock.
//
// With Config.HostStaging, NCCL is not needed: operations on device memory are copied
// through pinned host memory and performed by the engine for host memory.
//
// Send and Recv transfer device memory to device memory with NCCL. They are not ordered
// with streams, and run concurrently with collectives. Each pair of ranks that exchanges
// messages has a communicator of its own, made with the first message. NCCL may start
// concurrent messages in a different order on each rank. With Config.HostStaging, Send and
// Recv take host memory only.
package gpu

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/dl"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/gpu"
	"github.com/tutti-go/tutti/nccl"
)

// A choice returns the ordinal of a rank's device. place is the rank's index among the
// ranks of its host, from 0.
type choice func(place int) (ordinal int, err error)

// Auto assigns the devices of each host to its ranks, round-robin.
func Auto() tutti.Device {
	return choice(func(place int) (int, error) {
		n, err := cuda.Devices()
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, fmt.Errorf("%w: there is no GPU", tutti.ErrUnsupported)
		}
		return place % n, nil
	})
}

// Device assigns the device with this ordinal, from 0, to every rank.
func Device(ordinal int) tutti.Device {
	return choice(func(int) (int, error) { return ordinal, nil })
}

// Devices assigns the devices with these ordinals to the ranks of a host, in order. It is
// for tutti.Local, where one process drives several GPUs.
func Devices(ordinals ...int) tutti.Device {
	return choice(func(place int) (int, error) {
		if place >= len(ordinals) {
			return 0, &wrong{fmt.Sprintf("rank %d of this host has none of the %d devices; gpu.Devices takes one for each", place, len(ordinals))}
		}
		return ordinals[place], nil
	})
}

// Attach implements tutti.Device. It wraps a rank's engine in one that also serves the device, which then
// owns the engine. Without NCCL or the device it returns an error, and the engine stays the caller's. Package
// tutti calls it.
func (c choice) Attach(e engine.Engine, opt engine.DeviceOptions) (engine.Engine, error) {
	ordinal, err := c.ordinal(e, opt.Before)
	if err != nil {
		return nil, err
	}
	var lib *nccl.Library
	if !opt.HostStaging {
		if lib, err = nccl.Load(""); err != nil {
			return nil, &noNCCL{err}
		}
	}
	dev, err := cuda.Open(ordinal, opt.Logger)
	switch {
	case errors.Is(err, cuda.ErrInvalid):
		return nil, &wrong{err.Error()}
	case err != nil:
		return nil, err
	}
	return gpu.New(e, lib, dev, opt)
}

// ABI describes what ranks with a device must have in common. Package tutti compares it
// between ranks.
func (choice) ABI() string { return gpu.ABI() }

// wrong reports a device that this host does not have, as tutti.ErrInvalid.
type wrong struct{ text string }

func (e *wrong) Error() string { return e.text }

// Is reports whether target is tutti.ErrInvalid.
func (e *wrong) Is(target error) bool { return target == tutti.ErrInvalid }

// noNCCL reports that NCCL is missing, and the alternative.
type noNCCL struct{ err error }

func (e *noNCCL) Error() string {
	return e.err.Error() + "; with Config.HostStaging (TUTTI_HOST_STAGING=1) device memory goes through host memory instead"
}

func (e *noNCCL) Unwrap() error { return e.err }

// Is reports whether target is tutti.ErrNoDevicePath.
func (e *noNCCL) Is(target error) bool { return target == tutti.ErrNoDevicePath }

// ordinal returns the ordinal of a rank's device. After Shrink or Grow a rank keeps its
// device, because its memory is there.
func (c choice) ordinal(e, before engine.Engine) (int, error) {
	if b, ok := before.(*gpu.Engine); ok {
		return b.Ordinal(), nil
	}
	hosts, place := e.SameHost(), 0
	for r := range e.Rank() {
		if hosts[r] == hosts[e.Rank()] {
			place++
		}
	}
	return c(place)
}

// Of returns a slice in device memory as a Buffer. The slice must not be freed while an
// operation uses it.
func Of[T tutti.Elem](s *cuda.Slice[T]) tutti.Buffer {
	if s == nil {
		return tutti.Buffer{}
	}
	return tutti.DeviceBuffer(s.Device().Ordinal(), dl.Pointer(s.Pointer()), tutti.TypeOf[T](), s.Len())
}
