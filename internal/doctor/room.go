package doctor

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"syscall"
)

const (
	// WantThreads is how many threads a probe starts: what a few ranks, a launcher
	// and this program have together.
	WantThreads = 256
	// leastThreads is how many a try of one engine needs.
	leastThreads = 64
	// The address space that this program needs for its own threads. With the GPU
	// side they are glibc's, each of which reserves much.
	leastAddress    = 1 << 30
	leastAddressGPU = 3 << 30
)

// ErrNotStarted is what a probe returns that could not even be started.
var ErrNotStarted = errors.New("this program cannot start itself")

// lookForRoom finds out whether processes and threads can be started at all. This
// program itself starts few until it knows.
func (f *Facts) lookForRoom(ctx context.Context, p Probes) {
	if f.addressLacks() > 0 {
		return
	}
	var err error
	f.Threads, err = p.Threads(ctx)
	switch {
	case err == nil:
	case errors.Is(err, ErrNotStarted) && !errors.Is(err, syscall.EAGAIN): // which is a limit
		f.StartError = err.Error()
	default:
		f.ThreadError = err.Error()
	}
}

// addressLacks is how much address space this program needs, if it has less.
func (f *Facts) addressLacks() int {
	least := leastAddress
	if f.HasGPUs {
		least = leastAddressGPU
	}
	if f.Address < 0 || f.Address >= least {
		return 0
	}
	return least
}

// cramped reports whether nothing can be tried here.
func (f *Facts) cramped() bool {
	return f.addressLacks() > 0 || f.StartError != "" || f.ThreadError != "" && f.Threads < leastThreads
}

// ProbeThreads starts threads and tells how many there are, now and then: where too
// few are allowed this process dies of it.
func ProbeThreads(tell func(threads int) error) error {
	const step = 16
	release := make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer close(release)
	for n := step; n <= WantThreads; n += step {
		var started sync.WaitGroup
		for range step {
			started.Add(1)
			running.Go(func() {
				runtime.LockOSThread()
				started.Done()
				<-release
			})
		}
		started.Wait()
		if err := tell(n); err != nil {
			return err
		}
	}
	return nil
}
