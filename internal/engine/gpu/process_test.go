package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/job"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/nccl"
)

// TestProcesses runs a part of the suite with a process for each rank, all on
// device 0: NCCL treats each process as a host of its own.
func TestProcesses(t *testing.T) {
	sizes := []int{2}
	if text := os.Getenv("TUTTI_TEST_RANKS"); text != "" {
		sizes = nil
		for s := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(s)
			ok(t, err)
			sizes = append(sizes, n)
		}
	}
	suite := func(n int) func(t *testing.T) {
		return func(t *testing.T) {
			if n <= atOnce/2 {
				t.Parallel()
			}
			for r, cmd := range processes(t, n, "suite") {
				if out, err := proctest.Finish(t, cmd); err != nil {
					t.Errorf("rank %d: %v\n%s", r, err, out)
				}
			}
		}
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), suite(n))
	}
}

// atOnce is how many ranks share the device at once. Several groups run at the same time, because
// they wait most of the time.
const atOnce = 8

// TestLostProcess kills a rank while the others wait for it on the device.
func TestLostProcess(t *testing.T) {
	for r, cmd := range processes(t, 3, "lost") {
		out, err := proctest.Finish(t, cmd)
		switch {
		case r == 2:
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("the rank that was to be killed: %v\n%s", err, out)
			}
		case err != nil || !strings.Contains(out, "noticed"):
			t.Errorf("rank %d: %v\n%s", r, err, out)
		}
	}
}

// processes starts this binary once for each rank with a program, without waiting. Rank 0 inherits the
// listener of the rendezvous. Each process has an NCCL_HOSTID of its own, so that ranks may share a GPU.
func processes(t *testing.T, n int, program string) []*exec.Cmd {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	file, err := l.(*net.TCPListener).File()
	ok(t, err, l.Close())
	defer file.Close()
	cmds := make([]*exec.Cmd, n)
	for r := range cmds {
		cmd := proctest.Again(t, "TUTTI_TEST_PROGRAM="+program, "TUTTI_TEST_ADDR="+l.Addr().String(),
			fmt.Sprintf("TUTTI_TEST_RANK=%d", r), fmt.Sprintf("TUTTI_TEST_SIZE=%d", n), fmt.Sprintf("NCCL_HOSTID=tutti-test-%d", r))
		if testing.Short() {
			cmd.Env = append(cmd.Env, "TUTTI_TEST_SHORT=1")
		}
		if r == 0 {
			cmd.ExtraFiles = []*os.File{file}
		}
		ok(t, cmd.Start())
		cmds[r] = cmd
	}
	return cmds
}

// rankProcess runs one rank in this process: it joins the job, makes the engine for device 0, and runs the
// program that the environment names. Its context ends after five minutes.
func rankProcess() error {
	number := func(name string) int {
		v, _ := strconv.Atoi(os.Getenv(name))
		return v
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cfg := job.Config{
		Rank: number("TUTTI_TEST_RANK"), Size: number("TUTTI_TEST_SIZE"), Addr: os.Getenv("TUTTI_TEST_ADDR"),
		Secret: []byte("test"), Logger: slog.Default(),
	}
	if cfg.Rank == 0 {
		file := os.NewFile(3, "listener")
		l, err := net.FileListener(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		cfg.Listener = l
	}
	entered, err := job.Enter(ctx, cfg)
	if err != nil {
		return err
	}
	cpu := entered.World()
	program, staged := strings.CutPrefix(os.Getenv("TUTTI_TEST_PROGRAM"), "staged ")
	var lib *nccl.Library
	if !staged {
		if lib, err = nccl.Load(""); err != nil {
			return err
		}
	}
	dev, err := cuda.Open(0, nil)
	if err != nil {
		return err
	}
	e, err := New(cpu, lib, dev, engine.DeviceOptions{Logger: slog.New(slog.DiscardHandler), HostStaging: staged})
	if err != nil {
		return err
	}
	if staged {
		defer func() { fmt.Println("staged:", e.Staged()) }()
	}
	w := newTwin(e)
	if program == "lost" {
		return lose(ctx, w)
	}
	return errors.Join(suite(ctx, w), w.Close())
}

// suite runs cases without a fault, and some with one, on the number of ranks that they are for. In short
// mode it runs a third of them. Every rank's process runs the same cases in the same order; the first error
// ends it.
func suite(ctx context.Context, w *twin) error {
	opt := enginetest.Options{Light: true, Numbers: true, ExactReceives: true, NCCL: w.gpu.stage == nil, Ranks: []int{w.Size()}}
	for i, c := range enginetest.Cases(opt) {
		n := c.Ranks
		switch {
		case n > w.Size() || w.Rank() >= n:
			continue
		case os.Getenv("TUTTI_TEST_SHORT") != "" && i%3 != 0:
			continue
		case c.Fault != nil && i%11 != 0:
			continue
		case control == nil && strings.HasPrefix(c.Name, "group/at once"):
			// NCCL requires one order over all communicators of a device.
			continue
		}
		fmt.Println(time.Now().Format(time.TimeOnly), c.Name) // shown if it fails
		members := make([]int, n)
		for r := range members {
			members[r] = r
		}
		if err := runCase(ctx, w, uint64(i+1), members, &c); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// runCase runs a case on a new group.
func runCase(ctx context.Context, w *twin, seq uint64, members []int, c *enginetest.Case) error {
	sub, err := w.Sub(ctx, seq, members)
	if err != nil {
		return err
	}
	_, err = c.RunOn(ctx, sub)
	return err
}

// lose runs operations until the last rank kills itself after nine. The other ranks must get ErrRankLost that
// lists exactly that rank; they print it and return nil.
func lose(ctx context.Context, w *twin) error {
	x, err := cuda.Alloc[float32](w.gpu.dev, 1000)
	if err != nil {
		return err
	}
	m := deviceMem(w.gpu, x)
	for seq := uint64(1); ; seq++ {
		if seq == 10 && w.Rank() == w.Size()-1 {
			return syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		}
		call := engine.Call{Verb: engine.AllReduce, ReduceOp: engine.Max, Src: m, Dst: m}
		err := w.gpu.Run(ctx, seq, []engine.Call{call})
		if err == nil {
			continue
		}
		f := (*engine.Failure)(nil)
		if !errors.As(err, &f) || !errors.Is(err, engine.ErrRankLost) || !slices.Equal(f.Lost, []int{w.Size() - 1}) {
			return fmt.Errorf("a rank was killed, and this one was told: %w", err)
		}
		fmt.Println("noticed:", err)
		return errors.Join(x.Free(), w.Close())
	}
}
