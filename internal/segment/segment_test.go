//go:build linux

package segment

import (
	"bytes"
	"errors"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAgain maps a segment once more, as another process would.
func mapAgain(t *testing.T, s *Segment, parts, bytes, own int) (*Segment, error) {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(s.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return Map(fd, parts, bytes, own)
}

// store writes a byte and reports whether the system allows it.
func store(p unsafe.Pointer, v byte) (allowed bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { _ = recover() }()
	*(*byte)(p) = v
	return true
}

// TestParts maps a segment twice. Each mapping writes only its own part and reads all parts.
func TestParts(t *testing.T) {
	const name, parts, bytes = "tutti-parts", 3, 5000
	s, err := New(name, parts, bytes, 2)
	if err != nil {
		t.Fatal(err)
	}
	other, err := mapAgain(t, s, parts, bytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s.Bytes() != other.Bytes() || s.Bytes() < bytes {
		t.Errorf("%d and %d bytes", s.Bytes(), other.Bytes())
	}
	for _, c := range []struct {
		s        *Segment
		part     int
		writable bool
	}{{s, 0, false}, {s, 1, false}, {s, 2, true}, {other, 0, true}, {other, 1, false}, {other, 2, false}} {
		if got := store(unsafe.Add(c.s.Part(c.part), bytes-1), byte(7+c.part)); got != c.writable {
			t.Errorf("part %d can be written: %v", c.part, got)
		}
	}
	for i, want := range []byte{7, 0, 9} {
		for _, m := range []*Segment{s, other} {
			if got := *(*byte)(unsafe.Add(m.Part(i), bytes-1)); got != want {
				t.Errorf("part %d holds %d, want %d", i, got, want)
			}
		}
	}
	if got := countMappings(t, name); got > 5 {
		t.Errorf("%d mappings", got)
	}
	if err := errors.Join(s.Close(), other.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	if fds, maps := countDescriptors(t, name), countMappings(t, name); fds != 0 || maps != 0 {
		t.Errorf("%d descriptors and %d mappings stay", fds, maps)
	}
	if err := (*Segment)(nil).Close(); err != nil {
		t.Error(err)
	}
}

// TestSeals tries operations that the seals forbid, and maps files that are not valid segments. No
// descriptor may stay open.
func TestSeals(t *testing.T) {
	const name, parts, bytes = "tutti-seals", 2, 5000
	s, err := New(name, parts, bytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{1, 1 << 20} {
		if err := unix.Ftruncate(s.FD(), size); !errors.Is(err, unix.EPERM) {
			t.Errorf("the segment could be made %d bytes: %v", size, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(s.FD()), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("the other processes could be kept from writing: %v", err)
	}
	maps, fds := countMappings(t, name), countDescriptors(t, name)
	for what, f := range map[string]func() (*Segment, error){
		"too few parts":                     func() (*Segment, error) { return mapAgain(t, s, parts-1, bytes, 0) },
		"too many parts":                    func() (*Segment, error) { return mapAgain(t, s, parts+1, bytes, 0) },
		"another size":                      func() (*Segment, error) { return mapAgain(t, s, parts, 2*bytes, 0) },
		"a part too many":                   func() (*Segment, error) { return mapAgain(t, s, parts, bytes, parts) },
		"a part before all":                 func() (*Segment, error) { return mapAgain(t, s, parts, bytes, -1) },
		"no parts":                          func() (*Segment, error) { return mapAgain(t, s, 0, bytes, 0) },
		"more than there is":                func() (*Segment, error) { return mapAgain(t, s, parts, math.MaxInt, 0) },
		"new, with more":                    func() (*Segment, error) { return New(name, parts, math.MaxInt/2, 0) },
		"new, larger than an address space": func() (*Segment, error) { return New(name, 1<<20, 1<<40, 0) },
		"new, without a part":               func() (*Segment, error) { return New(name, parts, bytes, parts) },
		"private":                           func() (*Segment, error) { return Private(math.MaxInt) },
		"a file that is not sealed": func() (*Segment, error) {
			fd, err := unix.MemfdCreate(name, unix.MFD_ALLOW_SEALING)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Ftruncate(fd, int64(parts*s.Bytes())); err != nil {
				t.Fatal(err)
			}
			return Map(fd, parts, bytes, 0)
		},
		"no memory file": func() (*Segment, error) {
			fd, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			return Map(fd, parts, bytes, 0)
		},
	} {
		if m, err := f(); err == nil {
			t.Errorf("%s: it was mapped", what)
			_ = m.Close()
		}
	}
	if m, f := countMappings(t, name), countDescriptors(t, name); m != maps || f != fds {
		t.Errorf("%d mappings and %d descriptors, were %d and %d", m, f, maps, fds)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// countDescriptors counts this process's descriptors of memory files with a name.
func countDescriptors(t *testing.T, name string) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "/memfd:"+name) {
			n++
		}
	}
	return n
}

// countMappings counts this process's mappings of memory files with a name.
func countMappings(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "/memfd:"+name+" ")
}

// TestReadProcess reads the memory of a process with the given identity, and not that of another
// process with the same PID.
func TestReadProcess(t *testing.T) {
	self := NewProcessIdentity()
	from, to := make([]byte, 10_000), make([]byte, 10_000)
	for i := range from {
		from[i] = byte(i)
	}
	addr := uint64(uintptr(unsafe.Pointer(&from[0])))
	switch err := ReadProcess(self, unsafe.Pointer(&to[0]), addr, len(to)); {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS):
		t.Skip("this system does not let a process read memory so:", err)
	case err != nil || !bytes.Equal(from, to):
		t.Fatalf("what was read is not what is there: %v", err)
	}
	clear(to)
	other := *self
	other.Nonce = bytes.Clone(self.Nonce)
	other.Nonce[7]++
	if err := ReadProcess(&other, unsafe.Pointer(&to[0]), addr, len(to)); !errors.Is(err, unix.ESRCH) {
		t.Errorf("another process: %v", err)
	}
	other = *self
	other.Addr = 8
	if err := ReadProcess(&other, unsafe.Pointer(&to[0]), addr, len(to)); !errors.Is(err, unix.EFAULT) {
		t.Errorf("a process without a sign: %v", err)
	}
	if err := ReadProcess(self, unsafe.Pointer(&to[0]), 8, len(to)); !errors.Is(err, unix.EFAULT) {
		t.Errorf("no memory there: %v", err)
	}
	runtime.KeepAlive(self)
	runtime.KeepAlive(from)
}

func BenchmarkReadProcess(b *testing.B) {
	self := NewProcessIdentity()
	from, to := make([]byte, 16<<10), make([]byte, 16<<10)
	b.SetBytes(int64(len(to)))
	b.ReportAllocs()
	for b.Loop() {
		if err := ReadProcess(self, unsafe.Pointer(&to[0]), uint64(uintptr(unsafe.Pointer(&from[0]))), len(to)); err != nil {
			b.Fatal(err)
		}
	}
}
