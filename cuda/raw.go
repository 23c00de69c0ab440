package cuda

import "unsafe"

// CopyOut copies device memory to pinned host memory in the stream's order. It
// checks neither address: it is for callers that know both, and that keep both
// as they are until the copy is done.
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

// CopyIn copies pinned host memory to device memory, as CopyOut does the reverse.
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
