// Package gpu joins a Comm to NCCL: operations on memory of the rank's GPU go
// there, those on host memory stay what they are.
//
//	comm, err := tutti.Join(ctx, tutti.Config{Device: gpu.Auto()})
//	err = comm.AllReduce(ctx, gpu.Of(gradients), tutti.Avg) // a *cuda.Slice
//
// NCCL and the CUDA driver are loaded when the Comm is made; where they are
// missing, the error lists where they were looked for.
//
// A blocking method returns when the GPU is done. It does not wait for other
// streams: memory that a stream is still writing is to be synchronized first, or
// put in order by Batch.On. On one device, all ranks must start the operations of
// different Comms in the same order: NCCL may come to a standstill otherwise.
//
// With Config.HostStaging, NCCL is not needed: operations on device memory go through
// pinned host memory and the engine that serves host memory.
//
// Send and Recv take device memory from and to device memory, by NCCL. They are
// not put in order with streams, and go beside the collectives on communicators of
// their own, one for each two ranks that have sent each other anything, made with
// the first message: which of them NCCL has first may differ between ranks. With
// Config.HostStaging they take host memory only.
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

// choice is a device that is chosen when a rank knows its place on the host.
type choice func(place int) (ordinal int, err error)

// Auto chooses a device for each rank: the ranks of a host have them in turn.
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

// Device chooses the device with that number, from 0.
func Device(ordinal int) tutti.Device {
	return choice(func(int) (int, error) { return ordinal, nil })
}

// Devices chooses, for the ranks of a host in their order, the devices with these
// numbers: one process that drives several GPUs has them from tutti.Local.
func Devices(ordinals ...int) tutti.Device {
	return choice(func(place int) (int, error) {
		if place >= len(ordinals) {
			return 0, &wrong{fmt.Sprintf("rank %d of this host has none of the %d devices; gpu.Devices takes one for each", place, len(ordinals))}
		}
		return ordinals[place], nil
	})
}

// Attach puts the device beside a rank's engine. It is for package tutti.
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

// ABI describes what ranks with a device rely on in each other. It is for package
// tutti.
func (choice) ABI() string { return gpu.ABI() }

// wrong is a choice that this host does not have.
type wrong struct{ text string }

func (e *wrong) Error() string { return e.text }

// Is reports whether target is tutti.ErrInvalid.
func (e *wrong) Is(target error) bool { return target == tutti.ErrInvalid }

// noNCCL is why there is no way for device memory, and what to do about it.
type noNCCL struct{ err error }

func (e *noNCCL) Error() string {
	return e.err.Error() + "; with Config.HostStaging (TUTTI_HOST_STAGING=1) device memory goes through host memory instead"
}

func (e *noNCCL) Unwrap() error { return e.err }

// Is reports whether target is tutti.ErrNoDevicePath.
func (e *noNCCL) Is(target error) bool { return target == tutti.ErrNoDevicePath }

// ordinal is the number of a rank's device: the one that it had before, if it
// had one, because its memory is there.
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

// Of is a slice in device memory as a Buffer. The slice must not be freed while
// an operation uses it.
func Of[T tutti.Elem](s *cuda.Slice[T]) tutti.Buffer {
	if s == nil {
		return tutti.Buffer{}
	}
	return tutti.DeviceBuffer(s.Device().Ordinal(), dl.Pointer(s.Pointer()), tutti.TypeOf[T](), s.Len())
}
