package control

import (
	"errors"
	"syscall"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/overlay"
)

// ended says why a control connection has.
func ended(err error) engine.Loss {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return overlay.Silent
		}
	}
	return engine.Disconnected
}
