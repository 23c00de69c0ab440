package control

import (
	"errors"
	"syscall"

	"github.com/tutti-go/tutti/internal/overlay"
)

// lossReason describes for users why a link has ended.
func lossReason(err error) string {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return overlay.Silent
		}
	}
	return "its process has exited, or its connections were cut"
}
