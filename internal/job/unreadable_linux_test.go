package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"golang.org/x/sys/unix"
)

// dropPrivileges makes this process an unprivileged one that processes of the same user may read.
func dropPrivileges() error {
	const nobody = 65534
	return errors.Join(unix.Setgroups(nil), unix.Setgid(nobody), unix.Setuid(nobody), unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
}

// secretMemory returns n elements that the kernel shows to no other process. They stay mapped until the
// process ends. It fails on kernels without memfd_secret.
func secretMemory(n int) ([]int32, error) {
	fd, err := unix.MemfdSecret(unix.O_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_secret: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(4*n)); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, 4*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(&mem[0])), n), nil
}

// unreadable exchanges data that other processes cannot read: secret memory on all ranks, or the
// memory of rank 1, which becomes undumpable after Join.
func unreadable(ctx context.Context, e engine.Engine) error {
	const elems = 1 << 14
	size := e.Size()
	src, dst := make([]int32, size*elems), make([]int32, size*elems)
	if os.Getenv("TUTTI_TEST_SECRET") != "" {
		var err error
		if src, err = secretMemory(size * elems); err != nil {
			return err
		}
	} else if e.Rank() == 1 {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
	}
	seq := uint64(1)
	if err := e.Run(ctx, seq, []engine.Call{{Verb: engine.Barrier}}); err != nil {
		return err
	}
	mem := func(s []int32, n int) engine.Mem {
		return engine.Mem{Ptr: unsafe.Pointer(&s[0]), N: n, Type: kernel.Int32}
	}
	for round := range 3 {
		value := func(rank, i int) int32 { return int32(rank<<24 + round<<20 + i) }
		for i := range src {
			src[i] = value(e.Rank(), i)
		}
		const root, few = 1, elems / 4
		for _, c := range []engine.Call{
			{Verb: engine.AllGather, Src: mem(src, elems), Dst: mem(dst, size*elems)},
			{Verb: engine.AllToAll, Src: mem(src, size*elems), Dst: mem(dst, size*elems)},
			{Verb: engine.Broadcast, Root: root, Src: mem(dst, elems), Dst: mem(dst, elems)},
			{Verb: engine.Reduce, Root: root, ReduceOp: engine.Sum, Src: mem(src, few), Dst: mem(dst, few)},
			{Verb: engine.Reduce, Root: 0, ReduceOp: engine.Sum, Src: mem(src, few), Dst: mem(dst, few)},
		} {
			if c.Verb == engine.Broadcast && e.Rank() == root {
				c.Src, c.Dst = mem(src, elems), mem(src, elems)
			}
			if c.Verb == engine.Reduce && e.Rank() != c.Root {
				c.Dst = engine.Mem{}
			}
			seq++
			if err := e.Run(ctx, seq, []engine.Call{c}); err != nil {
				return err
			}
			for i, got := range unsafe.Slice((*int32)(c.Dst.Ptr), c.Dst.N) {
				var want int32
				switch c.Verb {
				case engine.AllGather:
					want = value(i/elems, i%elems)
				case engine.AllToAll:
					want = value(i/elems, e.Rank()*elems+i%elems)
				case engine.Broadcast:
					want = value(root, i)
				default:
					for r := range size {
						want += value(r, i)
					}
				}
				if got != want {
					return fmt.Errorf("%v in round %d: element %d is %#x, want %#x", c.Verb, round, i, got, want)
				}
			}
		}
	}
	return nil
}

// TestUnreadable exchanges data that the system does not let other processes read. The results must
// be right, and each process with such memory logs it once.
func TestUnreadable(t *testing.T) {
	if text, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && strings.TrimSpace(string(text)) != "0" {
		t.Skip("this system does not let processes read each other's memory at all")
	}
	const note = "another process may not read a buffer of this rank"
	for _, c := range []struct {
		name   string
		ranks  int
		secret bool // secret memory on all ranks; otherwise rank 1 is undumpable
		hosts  string
	}{
		{"secret/ranks=2", 2, true, ""},
		{"secret/ranks=3", 3, true, ""},
		{"undumpable/ranks=2", 2, false, ""},
		{"undumpable/ranks=4", 4, false, ""},
		{"undumpable/ranks=4, two hosts", 4, false, "a a a b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			how := "TUTTI_TEST_DROP=1"
			if c.secret {
				how = "TUTTI_TEST_SECRET=1"
				if _, err := secretMemory(1); err != nil {
					t.Skip("this system has no secret memory:", err)
				}
			} else if os.Getuid() != 0 {
				t.Skip("only the superuser can become another user")
			}
			w := start(t, c.ranks, "unreadable", how, "TUTTI_TEST_HOSTS="+c.hosts)
			w.wait(t)
			all := 0
			for r, out := range w.out {
				n := strings.Count(out.String(), note)
				if all += n; n > 1 || n > 0 && r != 1 && !c.secret {
					t.Errorf("rank %d said it %d times:\n%s", r, n, out)
				}
			}
			if all == 0 {
				t.Error("no rank said that its memory could not be read")
			}
		})
	}
}
