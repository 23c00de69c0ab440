// Package acceptloop accepts the connections of a listener.
package acceptloop

import (
	"errors"
	"net"
	"time"
)

// maxPause bounds the pause after a failed Accept.
const maxPause = 100 * time.Millisecond

// Run calls take with every connection until the listener is closed. If Accept fails, most likely
// for lack of descriptors, Run calls trouble once and retries after a pause until Accept succeeds.
// Neither function should block.
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
