package watch

import (
	"errors"
	"syscall"
)

// ended says why a control connection has.
func ended(err error) string {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return "its host does not answer"
		}
	}
	return "its control connection has ended"
}
