package cuda

import (
	"unsafe"
)

// use calls f with the device's context current, and keeps the slice's memory from
// being freed meanwhile. f submits work to the stream st, which must be on the
// slice's device, and use returns without waiting. If on is false, f uses the
// default stream and use waits for it.
func (s *Slice[T]) use(st *Stream, on bool, f func(stream uintptr) error) error {
	d := s.mem.dev
	var handle uintptr
	if on {
		if err := st.check(); err != nil {
			return err
		}
		if st.dev.ordinal != d.ordinal {
			return invalid("the memory is on %v, the stream on %v", d, st.dev)
		}
		handle = st.handle
	}
	s.mem.mu.RLock()
	defer s.mem.mu.RUnlock()
	if err := s.mem.check(); err != nil {
		return err
	}
	if s.n == 0 {
		return nil
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if err := f(handle); err != nil || on {
		return public(err)
	}
	return public(d.drv.StreamSynchronize(0))
}

// CopyFrom copies a Go slice of the same length to the device.
func (s *Slice[T]) CopyFrom(src []T) error { return s.copyFrom(nil, false, src) }

// CopyFromOn submits CopyFrom to a stream. Pinned memory must not change until the
// copy is complete; any other src may be reused when CopyFromOn returns.
func (s *Slice[T]) CopyFromOn(st *Stream, src []T) error { return s.copyFrom(st, true, src) }

func (s *Slice[T]) copyFrom(st *Stream, on bool, src []T) error {
	if len(src) != s.n {
		return invalid("the source has %d elements, the destination %d", len(src), s.n)
	}
	p := unsafe.Pointer(unsafe.SliceData(src))
	return s.use(st, on, func(h uintptr) error { return s.mem.dev.drv.MemcpyHtoDAsync(s.ptr, p, s.size(), h) })
}

// CopyTo copies to a Go slice of the same length.
func (s *Slice[T]) CopyTo(dst []T) error { return s.copyTo(nil, false, dst) }

// CopyToOn submits CopyTo to a stream. Pinned memory is filled when the stream
// reaches the copy; for any other dst, CopyToOn waits for it.
func (s *Slice[T]) CopyToOn(st *Stream, dst []T) error { return s.copyTo(st, true, dst) }

func (s *Slice[T]) copyTo(st *Stream, on bool, dst []T) error {
	if len(dst) != s.n {
		return invalid("the source has %d elements, the destination %d", s.n, len(dst))
	}
	p := unsafe.Pointer(unsafe.SliceData(dst))
	return s.use(st, on, func(h uintptr) error { return s.mem.dev.drv.MemcpyDtoHAsync(p, s.ptr, s.size(), h) })
}

// Copy copies from another slice of the same length, on any device.
func (s *Slice[T]) Copy(src *Slice[T]) error { return s.copy(nil, false, src) }

// CopyOn submits Copy to a stream, which must be on s's device.
func (s *Slice[T]) CopyOn(st *Stream, src *Slice[T]) error { return s.copy(st, true, src) }

// copy enqueues a copy of src in the order of st, or waits for the copy if on is false. Slices on two devices
// are copied between the devices. Both memories are read-locked meanwhile, so that neither is freed.
func (s *Slice[T]) copy(st *Stream, on bool, src *Slice[T]) error {
	if src == nil || src.n != s.n {
		return invalid("the slices differ in length")
	}
	if src.mem != s.mem {
		src.mem.mu.RLock()
		defer src.mem.mu.RUnlock()
		if err := src.mem.check(); err != nil {
			return err
		}
	}
	d, from := s.mem.dev, src.mem.dev
	return s.use(st, on, func(h uintptr) error {
		if d.ordinal == from.ordinal {
			return d.drv.MemcpyDtoDAsync(s.ptr, src.ptr, s.size(), h)
		}
		return d.drv.MemcpyPeerAsync(s.ptr, d.ctx, src.ptr, from.ctx, s.size(), h)
	})
}

// Fill sets every element to v.
func (s *Slice[T]) Fill(v T) error { return s.fill(nil, false, v) }

// FillOn submits Fill to a stream.
func (s *Slice[T]) FillOn(st *Stream, v T) error { return s.fill(st, true, v) }

func (s *Slice[T]) fill(st *Stream, on bool, v T) error {
	var bits uint64
	size := unsafe.Sizeof(v)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&bits)), size), unsafe.Slice((*byte)(unsafe.Pointer(&v)), size))
	return s.use(st, on, func(h uintptr) error {
		return s.mem.dev.drv.MemsetAsync(s.ptr, bits, size, uintptr(s.n), h)
	})
}
