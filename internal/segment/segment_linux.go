package segment

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// seals keep a segment's size, without which a reader could be killed by a
// bus error, and keep others from writing.
const (
	sizeSeals  = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	writeSeals = unix.F_SEAL_FUTURE_WRITE
)

// New makes a segment of zeros that this process may write. The name is for
// the lists of mappings that a person reads.
func New(name string, bytes int) (*Segment, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("segment: memfd_create: %w", err)
	}
	s := &Segment{fd: fd}
	if err := s.prepare(bytes); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Private makes memory that looks like a segment but is passed to nobody: where a
// system forbids memory files, a process alone can still do without them.
func Private(bytes int) (*Segment, error) {
	mem, err := unix.Mmap(-1, 0, max(bytes, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("segment: mapping %d bytes: %w", bytes, err)
	}
	return &Segment{mem: mem, fd: -1}, nil
}

func (s *Segment) prepare(bytes int) error {
	page := unix.Getpagesize()
	bytes = (bytes + page - 1) / page * page
	if err := unix.Ftruncate(s.fd, int64(bytes)); err != nil {
		return fmt.Errorf("segment: %d bytes: %w", bytes, err)
	}
	if err := s.mapped(bytes, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, sizeSeals); err != nil {
		return fmt.Errorf("segment: sealing: %w", err)
	}
	// Linux before 5.1 has no seal against writing by others. There, they are
	// trusted to map it for reading, as Map does.
	_, _ = unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, writeSeals|unix.F_SEAL_SEAL)
	return nil
}

func (s *Segment) mapped(bytes, prot int) error {
	if bytes == 0 {
		return nil
	}
	mem, err := unix.Mmap(s.fd, 0, bytes, prot, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("segment: mapping %d bytes: %w", bytes, err)
	}
	s.mem = mem
	return nil
}

// Map maps a segment that another process made, for reading. It takes over the
// descriptor, and refuses one that could be made smaller later.
func Map(fd int) (*Segment, error) {
	s := &Segment{fd: fd}
	if err := s.attach(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Segment) attach() error {
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
	return s.mapped(int(st.Size), unix.PROT_READ)
}

// FD is the descriptor to pass on. It stays the segment's.
func (s *Segment) FD() int { return s.fd }

// CloseFD closes the descriptor, when it need not be passed any more. The
// memory stays.
func (s *Segment) CloseFD() error {
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}

// Close unmaps the memory, which must not be touched any more.
func (s *Segment) Close() error {
	err := s.CloseFD()
	if s.mem != nil {
		err = errors.Join(err, unix.Munmap(s.mem))
		s.mem = nil
	}
	return err
}
