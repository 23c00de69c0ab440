package cuda

import (
	"runtime"
	"sync"
)

// A Pool is stream-ordered memory of its own: what AllocOn takes from it and
// FreeOn gives back is reused without asking the device. It may be shared
// between goroutines.
type Pool struct {
	dev     *Device
	handle  uintptr
	cleanup runtime.Cleanup

	mu     sync.Mutex
	closed bool
}

// NewPool makes a pool that keeps up to that many freed bytes for reuse when a
// stream is synchronized. The caller closes it.
func (d *Device) NewPool(keep uint64) (*Pool, error) {
	if err := d.retain(); err != nil {
		return nil, err
	}
	h, err := d.inside(func() (uintptr, error) {
		h, err := d.drv.MemPoolCreate(d.ordinal, 0)
		if err == nil && keep > 0 {
			if err = d.drv.MemPoolKeep(h, keep); err != nil {
				_ = d.drv.MemPoolDestroy(h) // the first error is the one to report
			}
		}
		return h, err
	})
	if err != nil {
		return nil, err
	}
	p := &Pool{dev: d, handle: h}
	p.cleanup = watch(p, d, "memory pool")
	return p, nil
}

func (p *Pool) check(d *Device) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ended("the pool", ErrClosed)
	}
	if d.ordinal != p.dev.ordinal {
		return invalid("the pool is of %v, the stream of %v", p.dev, d)
	}
	return nil
}

// Trim gives freed memory beyond that many bytes back to the device.
func (p *Pool) Trim(keep uint64) error {
	if err := p.check(p.dev); err != nil {
		return err
	}
	return public(p.dev.drv.MemPoolTrim(p.handle, uintptr(keep)))
}

// Close ends the pool. Memory that came from it lives until it is freed. It may
// be called again.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.cleanup.Stop()
	err := public(p.dev.drv.MemPoolDestroy(p.handle))
	if e := p.dev.release(); err == nil {
		err = e
	}
	return err
}
