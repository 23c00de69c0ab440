package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/proctest"
	"golang.org/x/sys/unix"
)

// steady runs many small and a few large operations, and checks that the resources in use do not
// grow.
func steady(ctx context.Context, e engine.Engine) error {
	small, _ := strconv.Atoi(os.Getenv("TUTTI_TEST_SMALL"))
	bytes, _ := strconv.Atoi(os.Getenv("TUTTI_TEST_LARGE"))
	const large = 4
	// Outside the heap, whose size varies with the garbage collector.
	memory, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	x := unsafe.Slice((*float32)(unsafe.Pointer(&memory[0])), bytes/4)
	seq := uint64(0)
	run := func(verb engine.Verb, n int) error {
		for i := range x[:n] {
			x[i] = float32(e.Rank() + i%7)
		}
		m := engine.Mem{Ptr: unsafe.Pointer(&x[0]), N: n, Type: kernel.Float32}
		seq++
		if err := e.Run(ctx, seq, []engine.Call{{Verb: verb, ReduceOp: engine.Sum, Dst: m, Src: m}}); err != nil {
			return err
		}
		size := e.Size()
		for i, got := range x[:n] {
			want := float32(i % 7)
			if verb == engine.AllReduce {
				want = float32(size*(size-1)/2 + size*(i%7))
			}
			if got != want {
				return fmt.Errorf("%v of %d elements: element %d is %v, want %v", verb, n, i, got, want)
			}
		}
		return nil
	}
	work := func(small int) error {
		for range large {
			for _, verb := range []engine.Verb{engine.AllReduce, engine.Broadcast} {
				if err := run(verb, len(x)); err != nil {
					return err
				}
			}
			for i := range small / large {
				verb := engine.AllReduce
				if i%8 == 0 {
					verb = engine.Broadcast
				}
				if err := run(verb, 1+i%64); err != nil {
					return err
				}
			}
		}
		return nil
	}
	// The warm-up makes everything that is made on first use.
	if err := work(1000); err != nil {
		return err
	}
	before, err := linked(e.Size())
	if err != nil {
		return err
	}
	if err := work(small); err != nil {
		return err
	}
	after, more := settle(before, 1<<20)
	fmt.Printf("%d operations, rank %d:\nbefore %+v\nafter  %+v\n", seq, e.Rank(), before, after)
	// No rank may close while another still measures.
	if err := e.Run(ctx, seq+1, []engine.Call{{Verb: engine.Barrier}}); err != nil {
		return err
	}
	return errors.Join(more, unix.Munmap(memory))
}

// TestSteady runs 20,000 small operations and eight of 16 MiB. With TUTTI_TEST_HEAVY it runs
// 100,000 and eight of 1 GiB.
func TestSteady(t *testing.T) {
	small, large := 20_000, 16<<20
	switch {
	case proctest.Heavy(t):
		small, large = 100_000, 1<<30
	case testing.Short():
		small, large = 2_000, 1<<20
	}
	for _, network := range []string{"", "1"} {
		t.Run("network="+network, func(t *testing.T) {
			w := start(t, 2, "steady", "TUTTI_TEST_NETWORK="+network,
				fmt.Sprint("TUTTI_TEST_SMALL=", small), fmt.Sprint("TUTTI_TEST_LARGE=", large))
			w.wait(t)
			for _, out := range w.out {
				t.Log(out)
			}
		})
	}
}

// endless runs operations until the process is killed, or one fails. It prints "ready" after ten.
func endless(ctx context.Context, e engine.Engine) error {
	x := make([]float32, 1<<20)
	m := engine.Mem{Ptr: unsafe.Pointer(&x[0]), N: len(x), Type: kernel.Float32}
	r, err := e.Alloc(ctx, 1, 1<<20)
	if err != nil {
		return err
	}
	defer func() { _ = r.Free() }()
	for seq := uint64(2); ; seq++ {
		if err := e.Run(ctx, seq, []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Max, Dst: m, Src: m}}); err != nil {
			return err
		}
		if seq == 10 {
			fmt.Println("ready")
		}
	}
}

// TestKillAll stops and then kills all ranks at once during operations, so that no rank can clean up. None of
// their segments, sockets and files may remain.
func TestKillAll(t *testing.T) {
	const n = 3
	for name, env := range map[string]string{
		"shared memory": "TUTTI_TEST_WANT=", "network": "TUTTI_TEST_NETWORK=1", "hierarchy": "TUTTI_TEST_HOSTS=a a b",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := start(t, n, "endless", env, "TMPDIR="+dir)
			for _, out := range w.out {
				out.Await(t, "ready", 1)
			}
			// Stopped ranks stay within their operations.
			w.stop(t)
			h := w.held(t)
			if (len(h.segments) > 0) != (name != "network") || len(h.sockets) < n {
				t.Errorf("%d segments and %d sockets are in use", len(h.segments), len(h.sockets))
			}
			if len(h.files) > 0 {
				t.Errorf("files are in use: %q", h.files)
			}
			w.signal(t, syscall.SIGKILL)
			for r, cmd := range w.cmds {
				_ = cmd.Wait()
				if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
					t.Errorf("rank %d was not killed: %v\n%s", r, cmd.ProcessState, w.out[r])
				}
			}
			if left := h.left(); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
				t.Errorf("left behind: %v, %v", files, err)
			}
		})
	}
}
