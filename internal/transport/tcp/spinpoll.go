package tcp

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/wait"
	"golang.org/x/sys/unix"
)

const (
	// turns is how often the sockets are tried between two looks at the waiter
	// and the clock. A try that finds nothing takes a fraction of a microsecond.
	triesPerCheck = 16
	// spinFor is how long they are tried before the goroutine sleeps. Being
	// woken takes some ten microseconds, an answer over a network a little more.
	spinFor = 400 * time.Microsecond
	// holdFor is how long, at first, the processor is not offered to others:
	// they would keep it for much longer than an answer takes.
	noYieldFor = 50 * time.Microsecond
	// slice is how long a goroutine sleeps before it looks at its waiter.
	maxSleep = 5 * time.Millisecond
	// askEvery is how often a sleeper asks whether the peer's host still answers.
	hostCheckEvery = time.Second
)

// patience is how a goroutine passes the time between two tries.
type spinPoll struct {
	oversubscribed bool         // ranks outnumber processors
	closing        *atomic.Bool // of the mesh
	tries          int          // of tries
	idleSince      time.Time    // when nothing moved any more; zero: not yet noticed
	yielding       bool         // that was a while ago
	hostsChecked   time.Time    // when the peers' hosts were last asked
}

// begin starts an operation.
func (p *spinPoll) begin() { p.tries, p.idleSince, p.yielding = 0, time.Time{}, false }

// turn is called after every try. It reports whether it is time to sleep.
func (p *spinPoll) afterTry(w *wait.Waiter, moved bool) (bool, error) {
	p.tries++
	switch {
	case moved:
		p.idleSince, p.yielding = time.Time{}, false
	case p.oversubscribed || p.yielding:
		// The one who is waited for may be waiting for this processor.
		sysYield()
	}
	if p.tries%triesPerCheck != 0 {
		return false, nil
	}
	if p.closing.Load() {
		return false, errMeshClosed
	}
	now, err := w.Check()
	if err != nil || moved {
		return false, err
	}
	if p.idleSince.IsZero() {
		p.idleSince, p.hostsChecked = now, now
	}
	waited := now.Sub(p.idleSince)
	p.yielding = waited >= noYieldFor
	if waited < spinFor {
		// So may a rank that is a goroutine of this process.
		runtime.Gosched()
		return false, nil
	}
	return true, nil
}

// sleep waits until one of the descriptors is ready, or for a slice. It
// reports whether it is time to ask whether the peers' hosts still answer.
func (p *spinPoll) sleep(fds []unix.PollFd) bool {
	_, _ = unix.Poll(fds, int(maxSleep/time.Millisecond))
	p.tries = triesPerCheck - 1 // the next turn looks at the waiter
	now := time.Now()
	if now.Sub(p.hostsChecked) < hostCheckEvery {
		return false
	}
	p.hostsChecked = now
	return true
}
