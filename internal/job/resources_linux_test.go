package job

import (
	"context"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/internal/race"
)

// formWithoutFirst makes a group in which its first member, rank 1, does not take part, and prints the error.
// Rank 1 waits until the test kills it; rank 0 is not a member and runs a Barrier of all ranks.
func formWithoutFirst(ctx context.Context, e engine.Engine) error {
	err := e.Run(ctx, 1, []engine.Call{{Verb: engine.Dup}})
	if err == nil && e.Rank() == 1 {
		fmt.Println("ready")
		<-ctx.Done()
		return ctx.Err()
	}
	if err == nil && e.Rank() > 1 {
		fmt.Println("ready")
		_, err = e.Sub(ctx, 1, []int{1, 2, 3})
	} else if err == nil {
		fmt.Println("ready")
		err = e.Run(ctx, 2, []engine.Call{{Verb: engine.Barrier}})
	}
	fmt.Println("ended:", err)
	return nil
}

// TestKillFirstMember kills the rank that would make a group's memory while the other members wait for it.
// All other ranks end with ErrRankLost that names it.
func TestKillFirstMember(t *testing.T) {
	const n = 4
	w := start(t, n, "orphaned")
	for _, out := range w.out {
		out.Await(t, "ready", 1)
	}
	maker := w.cmds[1]
	for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
		if _, connected := memorySockets(t, maker.Process.Pid); connected == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the others do not request memory")
		}
	}
	if err := maker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = maker.Wait() // killed
	for _, r := range []int{0, 2, 3} {
		if err := w.cmds[r].Wait(); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		if text := w.out[r].String(); !strings.Contains(text, "ended: ") || !strings.Contains(text, "a rank was lost") || !strings.Contains(text, "rank 1") {
			t.Errorf("rank %d: %s", r, text)
		}
	}
}

// memorySockets returns the addresses at which a process passes memory, and the number of processes
// connected there.
func memorySockets(t *testing.T, pid int) (listening []string, connected int) {
	t.Helper()
	h := inodes{segments: make(map[string]bool), sockets: make(map[string]bool)}
	h.add(t, pid)
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		// number references protocol flags type state inode path
		f := strings.Fields(line)
		if len(f) < 8 || !h.sockets[f[6]] || !strings.HasPrefix(f[7], "@tutti-") {
			continue
		}
		if f[3] == "00010000" {
			listening = append(listening, f[7])
		} else {
			connected++
		}
	}
	return listening, connected
}

// oversubscribe runs a small AllReduce in the group of all ranks and in a group made from it. It returns an
// error if this process has more mappings of memory files or descriptors than expected.
func oversubscribe(ctx context.Context, e engine.Engine) error {
	all := make([]int, e.Size())
	for r := range all {
		all[r] = r
	}
	sub, err := e.Sub(ctx, 1, all)
	if err != nil {
		return err
	}
	for _, g := range []engine.Engine{e, sub} {
		x := []int64{int64(g.Rank())}
		m := engine.Mem{Ptr: unsafe.Pointer(&x[0]), N: 1, Type: kernel.Int64}
		for seq := uint64(2); seq < 4; seq++ { // later than the first, because other ranks may still be connecting in that one
			if err := g.Run(ctx, seq, []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Max, Dst: m, Src: m}}); err != nil {
				return err
			}
		}
		if x[0] != int64(g.Size()-1) {
			return fmt.Errorf("the greatest is %d", x[0])
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	files, fds := strings.Count(string(maps), "/memfd:tutti"), proctest.OpenFiles()
	most := 40 + 4*(bits.Len(uint(e.Size()))-1)
	// Rank 0 has a control connection with every rank until links are made.
	for ; fds > most && ctx.Err() == nil; fds = proctest.OpenFiles() {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Printf("%d mappings, %d of them of memory files, and %d descriptors\n", strings.Count(string(maps), "\n"), files, fds)
	// The mappings before, of and behind this rank's part, for the host and two groups.
	if fds > most || files > 9 {
		return fmt.Errorf("%d mappings of memory files and %d descriptors, want at most 9 and %d", files, fds, most)
	}
	if err := e.Run(ctx, 4, []engine.Call{{Verb: engine.Barrier}}); err != nil {
		return err
	}
	return sub.Close()
}

// TestOversubscribed starts more ranks on a host than there are CPUs. The resources of a rank must
// hardly depend on the number of ranks.
func TestOversubscribed(t *testing.T) {
	n := 48
	if testing.Short() || race.Enabled {
		n = 16
	}
	w := start(t, n, "crowd")
	w.wait(t)
	t.Log(w.out[0], w.out[n-1])
}
