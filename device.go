package tutti

import (
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Device is a GPU for a Comm. Package gpu makes them: programs that do not
// import it need no CUDA, and stay static.
type Device interface {
	// Attach puts the device beside a rank's engine. It is for this module.
	Attach(e engine.Engine, opt engine.DeviceOptions) (engine.Engine, error)
}

// A Stream is a queue of work on a GPU: a *cuda.Stream.
type Stream interface {
	// Handle is the CUstream.
	Handle() uintptr
}

// attach puts the configured device beside an engine, the same as beside the
// rank's engine before, if there was one. The engine is closed if that fails.
func (c *Config) attach(e, before engine.Engine) (engine.Engine, error) {
	if c.Device == nil {
		return e, nil
	}
	with, err := c.Device.Attach(e, engine.DeviceOptions{
		Timeout: c.Timeout, Logger: c.Logger, HostStaging: c.HostStaging, Before: before,
	})
	if err != nil {
		// The others are told why this rank does not come.
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

// StagedCalls returns how many operations on device memory this rank has passed
// through host memory, because Config.HostStaging says so.
func (c *Comm) StagedCalls() uint64 {
	if c.device == nil {
		return 0
	}
	return c.device.Staged()
}
