package cuda

import (
	"runtime"
	"sync"
)

// A Pool is a memory pool for AllocOn. Memory that FreeOn returns to it is reused
// without a request to the device. It may be shared between goroutines.
type Pool struct {
	dev     *Device
	handle  uintptr // the CUmemoryPool
	cleanup runtime.Cleanup

	mu     sync.Mutex
	closed bool // guarded by mu
}

// NewPool makes a pool. When a stream is synchronized, the pool keeps up to keep bytes of
// freed memory for reuse. The caller closes it.
func (d *Device) NewPool(keep uint64) (*Pool, error) {
	if err := d.retain(); err != nil {
		return nil, err
	}
	h, err := d.create(func() (uintptr, error) {
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

// Trim returns freed memory beyond keep bytes to the device.
func (p *Pool) Trim(keep uint64) error {
	if err := p.check(p.dev); err != nil {
		return err
	}
	return public(p.dev.drv.MemPoolTrim(p.handle, uintptr(keep)))
}

// Close destroys the pool. Memory from it stays valid until it is freed. Further calls
// of Close do nothing.
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
