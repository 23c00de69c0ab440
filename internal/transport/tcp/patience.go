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
	turns = 16
	// spinFor is how long they are tried before the goroutine sleeps. Being
	// woken takes some ten microseconds, an answer over a network a little more.
	spinFor = 400 * time.Microsecond
	// holdFor is how long, at first, the processor is not offered to others:
	// they would keep it for much longer than an answer takes.
	holdFor = 50 * time.Microsecond
	// slice is how long a goroutine sleeps before it looks at its waiter.
	slice = 5 * time.Millisecond
	// askEvery is how often a sleeper asks whether the peer's host still answers.
	askEvery = time.Second
)

// patience is how a goroutine passes the time between two tries.
type patience struct {
	crowded bool         // ranks outnumber processors
	closing *atomic.Bool // of the mesh
	count   int          // of tries
	since   time.Time    // when nothing moved any more; zero: not yet noticed
	tired   bool         // that was a while ago
	asked   time.Time    // when the peers' hosts were last asked
}

// begin starts an operation.
func (p *patience) begin() { p.count, p.since, p.tired = 0, time.Time{}, false }

// turn is called after every try. It reports whether it is time to sleep.
func (p *patience) turn(w *wait.Waiter, moved bool) (bool, error) {
	p.count++
	switch {
	case moved:
		p.since, p.tired = time.Time{}, false
	case p.crowded || p.tired:
		// The one who is waited for may be waiting for this processor.
		sysYield()
	}
	if p.count%turns != 0 {
		return false, nil
	}
	if p.closing.Load() {
		return false, errMeshClosed
	}
	now, err := w.Check()
	if err != nil || moved {
		return false, err
	}
	if p.since.IsZero() {
		p.since, p.asked = now, now
	}
	waited := now.Sub(p.since)
	p.tired = waited >= holdFor
	if waited < spinFor {
		// So may a rank that is a goroutine of this process.
		runtime.Gosched()
		return false, nil
	}
	return true, nil
}

// sleep waits until one of the descriptors is ready, or for a slice. It
// reports whether it is time to ask whether the peers' hosts still answer.
func (p *patience) sleep(fds []unix.PollFd) bool {
	_, _ = unix.Poll(fds, int(slice/time.Millisecond))
	p.count = turns - 1 // the next turn looks at the waiter
	now := time.Now()
	if now.Sub(p.asked) < askEvery {
		return false
	}
	p.asked = now
	return true
}
