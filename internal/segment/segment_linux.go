package segment

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sizeSeals seal a segment's size. If another process could shrink the file, a read would end this
// process with SIGBUS.
const sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// New makes a zeroed segment with parts of at least the given bytes. This process writes part own.
// The name appears in /proc/PID/maps.
func New(name string, parts, bytes, own int) (*Segment, error) {
	part, err := partBytes(parts, bytes, unix.Getpagesize())
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("segment: memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(parts)*int64(part)); err != nil {
		return nil, errors.Join(fmt.Errorf("segment: %d parts of %d bytes: %w", parts, part, err), unix.Close(fd))
	}
	// F_SEAL_SEAL prevents further seals: a seal against writing would prevent other processes from
	// mapping their parts.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sizeSeals|unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(fmt.Errorf("segment: sealing: %w", err), unix.Close(fd))
	}
	return Map(fd, parts, bytes, own)
}

// Map maps a segment that another process made by New with the same parts and bytes. This process
// writes part own. Map takes ownership of fd. It refuses a file of another size or without size
// seals.
func Map(fd, parts, bytes, own int) (*Segment, error) {
	s := &Segment{fd: fd}
	if err := s.attach(parts, bytes, own); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// attach checks the seals and the size of the file and maps it. After an error the caller calls
// Close.
func (s *Segment) attach(parts, bytes, own int) error {
	part, err := partBytes(parts, bytes, unix.Getpagesize())
	if err != nil {
		return err
	}
	if own < 0 || own >= parts {
		return fmt.Errorf("segment: part %d is out of range: there are %d parts", own, parts)
	}
	seals, err := unix.FcntlInt(uintptr(s.fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("segment: not a memory file: %w", err)
	}
	if seals&sizeSeals != sizeSeals {
		return errors.New("segment: the memory file is not sealed")
	}
	var st unix.Stat_t
	if err := unix.Fstat(s.fd, &st); err != nil {
		return fmt.Errorf("segment: %w", err)
	}
	if st.Size != int64(parts)*int64(part) {
		return fmt.Errorf("segment: the memory file has %d bytes instead of %d", st.Size, int64(parts)*int64(part))
	}
	p, err := unix.MmapPtr(s.fd, 0, nil, uintptr(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("segment: mapping %d bytes: %w", st.Size, err)
	}
	s.mem, s.part = unsafe.Slice((*byte)(p), st.Size), part
	_, err = unix.MmapPtr(s.fd, int64(own)*int64(part), s.Part(own), uintptr(part), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("segment: mapping %d bytes for writing: %w", part, err)
	}
	return nil
}

// Private makes a segment of one part that cannot be passed to other processes. It works on systems
// that forbid memory files.
func Private(bytes int) (*Segment, error) {
	part, err := partBytes(1, bytes, unix.Getpagesize())
	if err != nil {
		return nil, err
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(part), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("segment: mapping %d bytes: %w", part, err)
	}
	return &Segment{mem: unsafe.Slice((*byte)(p), part), part: part, fd: -1}, nil
}

// FD returns the descriptor, or -1 if it is closed. The segment owns it.
func (s *Segment) FD() int { return s.fd }

// CloseFD closes the descriptor when it is not passed any more. The memory stays mapped.
func (s *Segment) CloseFD() error {
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}

// Close unmaps the memory. Close of a nil Segment does nothing.
func (s *Segment) Close() error {
	if s == nil {
		return nil
	}
	err := s.CloseFD()
	if s.mem != nil {
		err = errors.Join(err, unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(s.mem)), uintptr(len(s.mem))))
		s.mem = nil
	}
	return err
}
