package shmem

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

const (
	// lockedBytes is the most data that is copied while Lane.mu is held.
	lockedBytes = 64 << 10
	// callBytes bounds one system call. During the call, the garbage collector cannot stop the
	// goroutine.
	callBytes = 1 << 20
)

// receive takes the data of a matched receive. It reports true if the receive is done, or has failed
// and is withdrawn. Otherwise the data comes as a stream, or the group has failed on the sender.
// l.mu is held, and released during long copies.
func (l *Lane) receive(x *state) (done bool, err error) {
	a, p := x.from, x.peer
	if !x.accepted {
		if err := l.accept(x, p, a.message, int(a.place.bytes)); err != nil {
			l.withdrawReceive(x)
			return true, err
		}
		x.accepted = true
	}
	switch {
	case a.send != nil:
		l.copyOwn(x, a.send)
		return true, nil
	case a.kind == kindInline:
		copy(x.m.Body, a.data)
	case a.kind == kindSlab:
		kernel.Copy(unsafe.Pointer(unsafe.SliceData(x.m.Body)), unsafe.Add(p.part, a.place.offset), x.m.Len)
	default:
		if done, err = l.read(x); !done && err == nil {
			done, err = p.readStream(x)
		}
		if !done && err == nil {
			return false, nil
		}
	}
	if err != nil {
		l.abandon(x)
		return true, err
	}
	if a.kind != kindInline && l.opt.Withdrawn != nil && l.opt.Withdrawn(p.rank) {
		return false, nil // the data may be wrong; the wait ends when the group fails on this rank
	}
	p.report(a)
	if a.kind != kindInline {
		l.showChanges()
	}
	l.recycle(a)
	x.from, x.taken = nil, true
	return false, nil
}

// abandon ends a receive whose message cannot be read. The group fails.
func (l *Lane) abandon(x *state) {
	if x.receivesStream() {
		x.peer.abortStream()
	}
	x.from = nil
}

// copyOwn copies a message of this rank to itself.
func (l *Lane) copyOwn(x, from *state) {
	to, at := unsafe.Pointer(unsafe.SliceData(x.m.Body)), unsafe.Pointer(unsafe.SliceData(from.m.Body))
	if x.m.Len <= lockedBytes {
		kernel.Copy(to, at, x.m.Len)
	} else {
		x.copying = true
		l.unlock()
		kernel.Copy(to, at, x.m.Len)
		l.mu.Lock()
		x.copying = false
	}
	l.recycle(x.from)
	x.from = nil
	from.finish(nil)
}

// read reads data that is in the sender's buffer. It reports false if that is not possible or a
// stream is faster.
func (l *Lane) read(x *state) (done bool, err error) {
	p, at := x.peer, &x.from.place
	if at.region != 0 && l.opt.ReadRegion != nil && l.readRegion(x, at) {
		return true, nil
	}
	if l.opt.ReadProcess == nil || p.unreadable || x.from.unreadable || at.bytes < int64(l.layout.readMin) {
		return false, nil
	}
	l.unlock()
	err = l.readProcess(p.rank, unsafe.Pointer(unsafe.SliceData(x.m.Body)), at)
	l.mu.Lock()
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, wait.ErrStopped):
		return true, err
	case errors.Is(err, syscall.ESRCH):
		return true, &transport.LostError{Peer: p.rank, Err: err}
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EACCES):
		p.unreadable = true
	default: // this memory cannot be read, for example memory of a device
		x.from.unreadable = true
	}
	return false, nil
}

// readRegion reads from a region. It reports false if this process does not map the place.
func (l *Lane) readRegion(x *state, from *place) bool {
	long := from.bytes > lockedBytes
	if long {
		l.unlock()
		defer l.mu.Lock()
	}
	return l.opt.ReadRegion(x.peer.rank, from.region, from.offset, unsafe.Pointer(unsafe.SliceData(x.m.Body)), int(from.bytes))
}

// readProcess reads from the process of a rank.
func (l *Lane) readProcess(rank int, to unsafe.Pointer, from *place) error {
	for at := int64(0); at < from.bytes; at += callBytes {
		if l.lot.Stopped() {
			return wait.ErrStopped
		}
		if err := l.opt.ReadProcess(rank, unsafe.Add(to, at), from.addr+uint64(at), int(min(callBytes, from.bytes-at))); err != nil {
			return err
		}
	}
	return nil
}
