package tcp

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/wait"
	"golang.org/x/sys/unix"
)

const (
	// triesPerCheck is how many times the sockets are tried between two checks of the waiter and
	// the clock. A futile try takes a fraction of a microsecond.
	triesPerCheck = 16
	// spinFor is how long the sockets are tried before the goroutine sleeps. It covers a round trip
	// plus the time to be woken from poll(2).
	spinFor = 400 * time.Microsecond
	// noYieldFor is how long the goroutine first keeps its CPU. A thread that gets the CPU keeps it
	// for much longer than a round trip.
	noYieldFor = 50 * time.Microsecond
	// maxSleep bounds one sleep, after which the waiter is checked.
	maxSleep = 5 * time.Millisecond
	// hostCheckEvery is the interval between checks for a silent host.
	hostCheckEvery = time.Second
)

// spinPoll decides what a goroutine does between two tries of its sockets: spin, yield or sleep.
// The goroutine that polls owns it.
type spinPoll struct {
	oversubscribed bool         // this host has more ranks than CPUs
	closing        *atomic.Bool // of the mesh
	tries          int          // since begin
	idleSince      time.Time    // when data last moved; zero: the clock was not read since
	yielding       bool         // idle for noYieldFor
	hostsChecked   time.Time    // when the peers' hosts were last checked
}

// begin starts an operation.
func (p *spinPoll) begin() { p.tries, p.idleSince, p.yielding = 0, time.Time{}, false }

// afterTry is called after every try. It reports whether to sleep now. It returns an error when the mesh is
// closing or w has ended, which it checks at every triesPerCheck-th try.
func (p *spinPoll) afterTry(w *wait.Waiter, moved bool) (bool, error) {
	p.tries++
	switch {
	case moved:
		p.idleSince, p.yielding = time.Time{}, false
	case p.oversubscribed || p.yielding:
		// The awaited process may need this CPU.
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
		// The awaited rank may be a goroutine of this process.
		runtime.Gosched()
		return false, nil
	}
	return true, nil
}

// sleep waits until a descriptor is ready, or for maxSleep. It reports whether to check for silent
// hosts.
func (p *spinPoll) sleep(fds []unix.PollFd) bool {
	_, _ = unix.Poll(fds, int(maxSleep/time.Millisecond))
	p.tries = triesPerCheck - 1 // the next afterTry checks the waiter
	now := time.Now()
	if now.Sub(p.hostsChecked) < hostCheckEvery {
		return false
	}
	p.hostsChecked = now
	return true
}
