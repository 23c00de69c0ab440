//go:build linux

package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestSeals makes a segment, maps it again, and tries what must not be
// possible.
func TestSeals(t *testing.T) {
	s, err := New("tutti-test", 5000)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fd, err := unix.FcntlInt(uintptr(s.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Map(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if s.Len() != other.Len() || s.Len() < 5000 {
		t.Errorf("%d and %d bytes", s.Len(), other.Len())
	}
	*(*byte)(unsafe.Add(s.Ptr(), 4999)) = 7
	if got := *(*byte)(unsafe.Add(other.Ptr(), 4999)); got != 7 {
		t.Errorf("the other mapping sees %d", got)
	}
	if err := unix.Ftruncate(fd, 1); err == nil {
		t.Error("the segment could be made smaller")
	}
	if mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the segment could be mapped for writing", unix.Munmap(mem))
	}
	loose, err := unix.MemfdCreate("loose", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Map(loose); err == nil {
		t.Error("a file that is not sealed was mapped")
	}
}

// TestMeet links four doors, passes segments, and ends one of them.
func TestMeet(t *testing.T) {
	const n = 4
	doors := make([]*Door, n)
	all := make(map[int]Invitation)
	for i := range doors {
		var err error
		if doors[i], err = OpenDoor(); err != nil {
			t.Fatal(err)
		}
		defer doors[i].Close()
		all[i] = doors[i].Invitation()
	}
	// Strangers knock first: many who say nothing, and one who does.
	for range 100 {
		c, err := net.Dial("unixpacket", all[3].Name)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	c, err := net.Dial("unixpacket", all[3].Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(make([]byte, 36)); err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	gone := make(chan string, n*n)
	links := make([]map[int]*Link, n)
	var meeting sync.WaitGroup
	for i, d := range doors {
		guests := make(map[int]Invitation)
		for j, inv := range all {
			if j != i {
				guests[j] = inv
			}
		}
		meeting.Go(func() {
			var errs map[int]error
			links[i], errs = d.Meet(t.Context(), i, guests, News{
				Note: func(j int, note []byte) { t.Errorf("%d said to %d: %q", j, i, note) },
				Gone: func(j int) { gone <- fmt.Sprint(i, "<-", j) },
			})
			if len(links[i]) != n-1 || len(errs) != 0 {
				t.Errorf("%d met %d: %v", i, len(links[i]), errs)
			}
		})
	}
	meeting.Wait()
	if t.Failed() {
		return
	}
	for i := range n {
		meeting.Go(func() {
			s, err := New("tutti-test", 1)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			*(*byte)(s.Ptr()) = byte(i)
			for _, l := range links[i] {
				if err := l.Pass(Root, "key", s); err != nil {
					t.Error(err)
				}
			}
			for j, l := range links[i] {
				other, err := l.Take(t.Context(), Root, "key")
				if err != nil {
					t.Error(err)
					continue
				}
				if got := *(*byte)(other.Ptr()); got != byte(j) {
					t.Errorf("%d got %d from %d", i, got, j)
				}
				if err := other.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	meeting.Wait()
	// A message whose descriptor did not get through is told from one that is late.
	if _, err := links[0][1].c.Write([]byte(Root + separator + "lost")); err != nil {
		t.Fatal(err)
	}
	if _, err := links[1][0].Take(t.Context(), Root, "lost"); err == nil || t.Context().Err() != nil {
		t.Errorf("a message without a descriptor: %v", err)
	}
	for _, l := range links[2] {
		if err := l.c.Close(); err != nil { // as the end of its process would
			t.Error(err)
		}
	}
	// Each of three sees it, and the three links of 2 end themselves.
	for range 2 * (n - 1) {
		<-gone
	}
	if _, err := links[0][2].Take(context.Background(), Root, "never"); err == nil {
		t.Error("took something from a process that has ended")
	}
	for i := range n {
		for _, l := range links[i] {
			l.Close()
		}
	}
}

// TestMeetFlood has more strangers come to a door, and say nothing, than may be
// about to show the token. The oldest are closed, and the guest gets in.
func TestMeetFlood(t *testing.T) {
	const extra = 50
	host, err := OpenDoor()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	guest, err := OpenDoor()
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	news := News{Note: func(int, []byte) {}, Gone: func(int) {}}
	met := make(chan map[int]*Link, 1)
	go func() {
		links, _ := host.Meet(t.Context(), 1, map[int]Invitation{0: guest.Invitation()}, news)
		met <- links
	}()
	var strangers []net.Conn
	for range maxGreeting + extra {
		c, err := net.Dial("unixpacket", host.Invitation().Name)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		strangers = append(strangers, c)
	}
	for _, c := range strangers[:extra] { // these are closed before the meeting ends
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes", n)
		}
	}
	links, errs := guest.Meet(t.Context(), 0, map[int]Invitation{1: host.Invitation()}, news)
	if links[1] == nil {
		t.Fatalf("the guest was not let in: %v", errs)
	}
	defer links[1].Close()
	other := <-met
	if other[0] == nil {
		t.Fatal("the host has not met the guest")
	}
	defer other[0].Close()
}

// TestPeek reads memory of a process that has its sign, and not of one that has only
// its number.
func TestPeek(t *testing.T) {
	self := NewSign()
	from, to := make([]byte, 10_000), make([]byte, 10_000)
	for i := range from {
		from[i] = byte(i)
	}
	addr := uint64(uintptr(unsafe.Pointer(&from[0])))
	switch err := Peek(self, unsafe.Pointer(&to[0]), addr, len(to)); {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS):
		t.Skip("this system does not let a process read memory so:", err)
	case err != nil || !bytes.Equal(from, to):
		t.Fatalf("what was read is not what is there: %v", err)
	}
	clear(to)
	other := *self
	other.Mark = bytes.Clone(self.Mark)
	other.Mark[7]++
	if err := Peek(&other, unsafe.Pointer(&to[0]), addr, len(to)); !errors.Is(err, unix.ESRCH) {
		t.Errorf("another process: %v", err)
	}
	other = *self
	other.Addr = 8
	if err := Peek(&other, unsafe.Pointer(&to[0]), addr, len(to)); !errors.Is(err, unix.EFAULT) {
		t.Errorf("a process without a sign: %v", err)
	}
	if err := Peek(self, unsafe.Pointer(&to[0]), 8, len(to)); !errors.Is(err, unix.EFAULT) {
		t.Errorf("no memory there: %v", err)
	}
	runtime.KeepAlive(self)
	runtime.KeepAlive(from)
}

func BenchmarkPeek(b *testing.B) {
	self := NewSign()
	from, to := make([]byte, 16<<10), make([]byte, 16<<10)
	b.SetBytes(int64(len(to)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Peek(self, unsafe.Pointer(&to[0]), uint64(uintptr(unsafe.Pointer(&from[0]))), len(to)); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNote has a process tell another something and end, also without having
// read all that it was told itself, or close the link before.
func TestNote(t *testing.T) {
	s, err := New("tutti-test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		name string
		end  func(l *Link) error
		want string
	}{
		{"ended", func(l *Link) error { return l.c.Close() }, "7 says one, 7 says two, 7 is gone"},
		{"closed", func(l *Link) error {
			close(l.gone) // nobody listens on this side
			return l.Close()
		}, "7 says one, 7 says two"},
	} {
		for _, unread := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, " unread=", unread), func(t *testing.T) {
				near, far := pair(t)
				defer near.Close()
				if unread {
					if err := near.Note([]byte("never read")); err != nil {
						t.Fatal(err)
					}
				}
				for _, note := range []string{"one", "two"} {
					if err := far.Note([]byte(note)); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.end(far); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the first time the end may be news
					if err := near.Pass(Root, "key", s); !errors.Is(err, ErrGone) {
						t.Errorf("passing to one that is gone: %v", err)
					}
				}
				var heard []string
				near.listen(7, News{
					Note: func(guest int, note []byte) { heard = append(heard, fmt.Sprintf("%d says %s", guest, note)) },
					Gone: func(guest int) { heard = append(heard, fmt.Sprint(guest, " is gone")) },
				})
				if got := strings.Join(heard, ", "); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			})
		}
	}
	// One that does not read is not waited for.
	near, far := pair(t)
	defer far.c.Close()
	defer near.c.Close()
	for near.Note(make([]byte, 1000)) == nil {
	}
}

// pair is the two ends of a link to which nobody listens.
func pair(t *testing.T) (near, far *Link) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*Link
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		ends[i] = newLink(c.(*net.UnixConn))
	}
	return ends[0], ends[1]
}
