package doctor

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"syscall"
)

const (
	// WantThreads is how many threads the probe starts: about as many as a few ranks, a
	// launcher and this program have together.
	WantThreads = 256
	// minThreads is how many threads a try of one engine needs.
	minThreads = 64
	// minAddress and minAddressGPU are the address space in bytes that this program
	// needs for its threads. With the GPU libraries, glibc creates the threads and
	// reserves more for each.
	minAddress    = 1 << 30
	minAddressGPU = 3 << 30
)

// ErrNotStarted is returned by a probe whose process could not be started.
var ErrNotStarted = errors.New("this program cannot start a copy of itself")

// probeThreads finds out whether processes and threads can be started. This program
// starts few threads before that.
func (f *Facts) probeThreads(ctx context.Context, p Probes) {
	if f.missingAddressSpace() > 0 {
		return
	}
	var err error
	f.Threads, err = p.Threads(ctx)
	switch {
	case err == nil:
	case errors.Is(err, ErrNotStarted) && !errors.Is(err, syscall.EAGAIN): // EAGAIN is a limit
		f.StartError = err.Error()
	default:
		f.ThreadError = err.Error()
	}
}

// missingAddressSpace returns the address space in bytes that this program needs, or 0
// if it has enough.
func (f *Facts) missingAddressSpace() int {
	need := minAddress
	if f.HasGPUs {
		need = minAddressGPU
	}
	if f.Address < 0 || f.Address >= need {
		return 0
	}
	return need
}

// cannotStart reports whether no check can be run because processes or threads cannot
// be started.
func (f *Facts) cannotStart() bool {
	return f.missingAddressSpace() > 0 || f.StartError != "" || f.ThreadError != "" && f.Threads < minThreads
}

// ProbeThreads starts threads and reports their number in steps. Where the limit is too low, the
// process dies. It releases the threads and waits for them before it returns, also after an error
// of report.
func ProbeThreads(report func(threads int) error) error {
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
		if err := report(n); err != nil {
			return err
		}
	}
	return nil
}
