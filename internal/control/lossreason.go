package control

import (
	"errors"
	"syscall"

	"github.com/tutti-go/tutti/internal/overlay"
)

// ended says why a control connection has.
func lossReason(err error) string {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return overlay.Silent
		}
	}
	return "its control connection has ended"
}
