package tutti

import (
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Device is a GPU for a Comm. Package gpu creates Devices. A program that does not
// import it needs no CUDA and can be linked statically.
type Device interface {
	// Attach returns an engine for host memory and the device, made of a rank's engine.
	// It is for use by this module.
	Attach(e engine.Engine, opt engine.DeviceOptions) (engine.Engine, error)
}

// A Stream is a queue of work on a GPU: a *cuda.Stream.
type Stream interface {
	// Handle is the CUstream.
	Handle() uintptr
}

// attach returns an engine for host memory and the configured device, made of e. If before is not
// nil, attach uses the same device as before does. It closes e if it fails.
func (c *Config) attach(e, before engine.Engine) (engine.Engine, error) {
	if c.Device == nil {
		return e, nil
	}
	with, err := c.Device.Attach(e, engine.DeviceOptions{
		Timeout: c.Timeout, Logger: c.Logger, HostStaging: c.HostStaging, Before: before,
	})
	if err != nil {
		// So that the other ranks report why this rank does not join.
		own := &cause{kind: ErrUnsupported, reason: err.Error(), own: err}
		for _, kind := range []error{ErrNoDevicePath, ErrInvalid} {
			if errors.Is(err, kind) {
				own.kind = kind
			}
		}
		e.Fail(&engine.Failure{Kind: own.kind, Rank: e.Rank(), Facts: engine.Facts{Text: own.reason}, Err: err})
		return nil, errors.Join(own, e.Close())
	}
	return with, nil
}
