// Package accept is the loop of whoever listens.
package acceptloop

import (
	"errors"
	"net"
	"time"
)

// longest is the pause between two tries where nothing can be accepted.
const maxPause = 100 * time.Millisecond

// Each gives every connection to take, until the listener is closed. When none
// can be accepted, most likely for want of descriptors, trouble is told once,
// and it is tried again after a while: some will come back. Neither function
// should block.
func Run(l net.Listener, trouble func(error), take func(net.Conn)) {
	var pause time.Duration
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			take(c)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		case pause == 0:
			trouble(err)
		}
		pause = min(max(2*pause, time.Millisecond), maxPause)
		time.Sleep(pause)
	}
}
