package nccl_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/nccl"
)

// names are the programs that end without an error, in order.
func names() []string {
	var all []string
	for name := range programs {
		if name != "lost" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// TestGoroutines runs every program with ranks in this process.
func TestGoroutines(t *testing.T) {
	for _, name := range names() {
		for _, n := range []int{1, 2, 3} {
			for _, cfg := range []nccl.Config{{}, {NonBlocking: true}} {
				t.Run(fmt.Sprintf("%s/%d/nonblocking=%v", name, n, cfg.NonBlocking), func(t *testing.T) {
					clean(t)
					ok(t, together(t, load(t), n, cfg, programs[name]))
				})
			}
		}
	}
}

// TestVersions runs the programs that depend on the version, with every version of the fake GPU.
func TestVersions(t *testing.T) {
	fake(t)
	for _, v := range fakegpu.Versions {
		libs, err := fakegpu.Build(v)
		ok(t, err)
		lib, err := nccl.Load(libs.NCCL)
		ok(t, err)
		if got := lib.Version(); got.Code() != v || lib.Path() != libs.NCCL {
			t.Errorf("version %v in %s", got, lib.Path())
		}
		for _, name := range []string{"verbs", "groups", "split", "memory", "signals"} {
			t.Run(fmt.Sprintf("%d/%s", v, name), func(t *testing.T) {
				clean(t)
				ok(t, together(t, lib, 2, nccl.Config{}, programs[name]))
			})
		}
	}
}

// sizes are the numbers of processes to run.
func sizes() []int {
	text := os.Getenv("TUTTI_TEST_RANKS")
	if text == "" {
		return []int{2, 3}
	}
	var all []int
	for s := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(s); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// processes starts this binary once for each rank, all on device 0. To NCCL each is a host of its own.
func processes(t *testing.T, name string, n int, env ...string) []*exec.Cmd {
	t.Helper()
	id, err := load(t).NewID()
	ok(t, err)
	cmds := make([]*exec.Cmd, n)
	for r := range cmds {
		cmds[r] = proctest.Again(t, append([]string{
			"TUTTI_TEST_PROGRAM=" + name, fmt.Sprintf("TUTTI_TEST_RANK=%d", r), fmt.Sprintf("TUTTI_TEST_SIZE=%d", n),
			"TUTTI_TEST_ID=" + hex.EncodeToString(id[:]), fmt.Sprintf("NCCL_HOSTID=tutti-test-%d", r),
		}, env...)...)
		ok(t, cmds[r].Start())
	}
	return cmds
}

func TestProcesses(t *testing.T) {
	for _, n := range sizes() {
		for _, name := range names() {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				for r, cmd := range processes(t, name, n) {
					if out, err := proctest.Finish(t, cmd); err != nil {
						t.Errorf("rank %d: %v\n%s", r, err, out)
					}
				}
			})
		}
	}
}

// TestLostProcess kills a rank: the others notice, abort, and exit with code 0.
func TestLostProcess(t *testing.T) {
	for _, env := range []string{"TUTTI_TEST_NONBLOCKING=1", "TUTTI_TEST_NONBLOCKING="} {
		if control == nil && env == "TUTTI_TEST_NONBLOCKING=" {
			break // NCCL itself hangs in the call and cannot be aborted there
		}
		for r, cmd := range processes(t, "lost", 3, env) {
			out, err := proctest.Finish(t, cmd)
			if r == 2 {
				if err == nil || !strings.Contains(err.Error(), "killed") {
					t.Errorf("the rank that was to be killed: %v\n%s", err, out)
				}
				continue
			}
			if err != nil || !strings.Contains(out, "noticed:") {
				t.Errorf("rank %d: %v\n%s", r, err, out)
			}
		}
	}
}

// TestNoLibrary runs a process that cannot find NCCL, and checks this process, which can.
func TestNoLibrary(t *testing.T) {
	ok(t, nccl.Available())
	cmd := exec.Command(proctest.Self(t))
	cmd.Env = append(os.Environ(), "TUTTI_TEST_PROBE=1", "TUTTI_NCCL_LIBRARY=/no/such/libnccl.so.2")
	out, err := cmd.CombinedOutput()
	ok(t, err)
	for _, want := range []string{"/no/such/libnccl.so.2: cannot open", "TUTTI_NCCL_LIBRARY"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q does not say %q", out, want)
		}
	}
}
