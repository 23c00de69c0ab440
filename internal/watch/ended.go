package watch

import (
	"errors"
	"syscall"
)

// silent is why the ranks of a host are lost that is gone.
const silent = "the host does not answer"

// ended says why a control connection has.
func ended(err error) string {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return silent
		}
	}
	return "its control connection has ended"
}
