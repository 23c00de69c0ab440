package control

import (
	"errors"
	"syscall"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/overlay"
)

// lossReason returns how a rank is lost whose link has ended with err.
func lossReason(err error) engine.Loss {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return overlay.Silent
		}
	}
	return engine.Disconnected
}
