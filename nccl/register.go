package nccl

import (
	"context"
	"sync"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// A Registration is memory that NCCL can use without copying it first. It may be shared
// between goroutines.
type Registration struct {
	c      *Comm
	handle uintptr
	once   sync.Once // runs Close
	err    error     // of Close
}

// Register registers memory with the communicator, preferably memory from Alloc. The
// caller closes the registration before freeing the memory. It needs NCCL 2.19.
func (c *Comm) Register(b Buffer) (*Registration, error) {
	if err := b.check("registered", c); err != nil {
		return nil, err
	}
	if b.n == 0 {
		return nil, invalid("there is nothing to register")
	}
	u, err := c.acquireInContext("Register")
	if err != nil {
		return nil, err
	}
	h, err := c.lib.sys.CommRegister(c.handle(), b.ptr, uintptr(b.n*b.t.Size()))
	if err = c.finish(u, err); err != nil {
		return nil, err
	}
	return &Registration{c: c, handle: h}, nil
}

// Close ends the registration. Further calls do nothing, nor does the first one after the
// communicator was closed.
func (r *Registration) Close() error {
	r.once.Do(func() { r.err = r.c.deregister(r.handle, r.c.lib.sys.CommDeregister) })
	return r.err
}

func (c *Comm) deregister(handle uintptr, call func(comm, handle uintptr) error) error {
	u, err := c.acquireInContext("Close")
	if err != nil {
		return ignoreEnded(err)
	}
	return c.finish(u, call(c.handle(), handle))
}

// WindowMode is a set of flags for NewWindow.
type WindowMode int

// The flags of WindowMode; they can be combined with |.
const (
	Symmetric      WindowMode = 1 // all ranks use the same offsets in collectives (2.27)
	StrictOrdering WindowMode = 2 // writes arrive in order (2.28)
)

// A Window is memory of all ranks that is registered together, as ncclWindow_t. It may be
// shared between goroutines.
type Window struct {
	c      *Comm
	slot   *ncclsys.Slot // the handle; 0: NCCL made nothing of it
	b      Buffer
	once   sync.Once // runs Close
	closed bool      // guarded by mu
	mu     sync.Mutex
	err    error // of Close; written inside once
}

// NewWindow registers memory from Alloc as a window. All ranks must call it, with memory
// of the same size. The caller closes the window before freeing the memory. It needs NCCL
// 2.27.
func (c *Comm) NewWindow(ctx context.Context, b Buffer, mode WindowMode) (*Window, error) {
	if err := b.check("window's", c); err != nil {
		return nil, err
	}
	if b.n == 0 || b.ptr%4096 != 0 || mode < 0 || mode > Symmetric|StrictOrdering {
		return nil, invalid("a window must not be empty and must begin at a multiple of 4096 bytes; allocate it with nccl.Alloc")
	}
	w := &Window{c: c, slot: new(ncclsys.Slot), b: b}
	err := c.manage(ctx, "NewWindow", open, open, func(h uintptr) error {
		return c.lib.sys.CommWindowRegister(h, b.ptr, uintptr(b.n*b.t.Size()), w.slot, int(mode))
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Supported reports whether the hardware supports the window. Without support the window
// is valid but has no effect.
func (w *Window) Supported() bool { return w.slot.Handle != 0 }

// Pointer returns the address at which the window begins. It needs NCCL 2.29.
func (w *Window) Pointer() (uintptr, error) {
	if err := w.check(); err != nil {
		return 0, err
	}
	u, err := w.c.acquireInContext("Pointer")
	if err != nil {
		return 0, err
	}
	p, err := w.c.lib.sys.WinGetUserPtr(w.c.handle(), w.slot.Handle)
	return p, w.c.finish(u, err)
}

func (w *Window) check() error {
	if w == nil || !w.Supported() {
		return invalid("no window")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return invalid("the window has been closed")
	}
	return nil
}

// Close ends the window. Further calls do nothing, nor does the first one after the
// communicator was closed.
func (w *Window) Close() error {
	w.once.Do(func() {
		w.mu.Lock()
		w.closed = true
		w.mu.Unlock()
		if w.Supported() {
			w.err = w.c.deregister(w.slot.Handle, w.c.lib.sys.CommWindowDeregister)
		}
	})
	return w.err
}

// PutSignal writes b into peer's part of a window, from the given element on, and then
// signals peer. It needs NCCL 2.29.
func (c *Comm) PutSignal(b Buffer, peer int, w *Window, element int, s *cuda.Stream) error {
	err := first(c.checkPeer(peer), w.check(), c.check(&b, nil, b.n, 1, 0, s))
	if err == nil && (w.c != c || b.t != w.b.t || element < 0 || element > w.b.n-b.n) {
		err = invalid("%d elements at %d do not fit into the window", b.n, element)
	}
	if err != nil {
		return c.recordRefusal(err)
	}
	u, err := c.acquireInContext("PutSignal")
	if err != nil {
		return c.recordRefusal(err)
	}
	return c.finish(u, c.lib.sys.PutSignal(b.ptr, b.n, b.t.code(), peer, w.slot.Handle, element*b.t.Size(), c.handle(), s.Handle()))
}

// Signal signals peer. It needs NCCL 2.29.
func (c *Comm) Signal(peer int, s *cuda.Stream) error {
	if err := first(c.checkPeer(peer), c.check(nil, nil, 0, 0, 0, s)); err != nil {
		return c.recordRefusal(err)
	}
	u, err := c.acquireInContext("Signal")
	if err != nil {
		return c.recordRefusal(err)
	}
	return c.finish(u, c.lib.sys.Signal(peer, c.handle(), s.Handle()))
}

// WaitSignal makes the stream wait for count signals from peer, of Signal and PutSignal.
// It needs NCCL 2.29.
func (c *Comm) WaitSignal(peer, count int, s *cuda.Stream) error {
	err := first(c.checkPeer(peer), c.check(nil, nil, 0, 0, 0, s))
	if err == nil && (count < 1 || int(int32(count)) != count) {
		err = invalid("%d is not a valid number of signals", count)
	}
	if err != nil {
		return c.recordRefusal(err)
	}
	u, err := c.acquireInContext("WaitSignal")
	if err != nil {
		return c.recordRefusal(err)
	}
	desc := []ncclsys.WaitSignalDesc{{Count: int32(count), Peer: int32(peer)}}
	return c.finish(u, c.lib.sys.WaitSignal(desc, c.handle(), s.Handle()))
}

// checkPeer returns an error unless peer is another rank.
func (c *Comm) checkPeer(peer int) error {
	if err := c.checkRoot(peer); err != nil {
		return err
	}
	if peer == c.rank {
		return invalid("rank %d is this rank itself", peer)
	}
	return nil
}
