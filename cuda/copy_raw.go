package cuda

import "unsafe"

// CopyOut copies device memory to pinned host memory in the order of the stream. It does
// not check the addresses. The caller keeps both memories valid until the copy is
// complete.
func (s *Stream) CopyOut(dst unsafe.Pointer, src, bytes uintptr) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.dev.enter(); err != nil {
		return err
	}
	defer s.dev.leave()
	return public(s.dev.drv.MemcpyDtoHAsync(dst, src, bytes, s.handle))
}

// CopyIn copies pinned host memory to device memory, under the conditions of CopyOut.
func (s *Stream) CopyIn(dst uintptr, src unsafe.Pointer, bytes uintptr) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.dev.enter(); err != nil {
		return err
	}
	defer s.dev.leave()
	return public(s.dev.drv.MemcpyHtoDAsync(dst, src, bytes, s.handle))
}
