package torch_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/torch"
)

//go:embed testdata/group.py
var script string

// goRankProcess is a process with a Go rank of a job that also has Python ranks.
func goRankProcess() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	join := torch.Join
	if os.Getenv("TUTTI_TEST_PYTORCH") == "vllm" {
		join = torch.JoinVLLM
	}
	g, err := join(ctx, torch.Config{})
	if err != nil {
		return err
	}
	err = goVerbs(ctx, g).program(g.Rank(), g.Size())
	if err = errors.Join(err, g.Close()); err == nil {
		fmt.Println("well Go")
	}
	return err
}

// TestPyTorch runs two Go ranks and two ranks of real PyTorch on one GPU. Each is a process and, to
// NCCL, a host.
func TestPyTorch(t *testing.T) {
	if control != nil {
		t.Skip("this test needs a GPU (TUTTI_TEST_GPU=1); TestGroup stands for it elsewhere")
	}
	if out, err := exec.Command("python3", "-c", "import torch; assert torch.cuda.is_available()").CombinedOutput(); err != nil {
		t.Skipf("PyTorch with CUDA is not installed here: %s", out)
	}
	for _, c := range []struct {
		name, how string
		golang    [4]bool
		env       string
	}{
		{"Python leads", "torch", [4]bool{false, true, false, true}, "TUTTI_TEST_EAGER="},
		{"Go leads, device_id", "torch", [4]bool{true, false, true, false}, "TUTTI_TEST_EAGER=1"},
		{"as vLLM does it", "vllm", [4]bool{false, true, false, true}, "TUTTI_TEST_EAGER="},
	} {
		t.Run(c.name, func(t *testing.T) { fourRanks(t, c.how, c.golang, c.env) })
	}
}

// fourRanks runs the four processes until all have exited. If one fails, the test fails and the
// others are killed.
func fourRanks(t *testing.T, how string, golang [4]bool, env string) {
	file := filepath.Join(t.TempDir(), "group.py")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(proctest.FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	begin := time.Now()
	var all sync.WaitGroup
	for rank, isGo := range golang {
		cmd := exec.CommandContext(ctx, "python3", file, how)
		if isGo {
			cmd = exec.CommandContext(ctx, os.Args[0])
		}
		cmd.Env = append(os.Environ(), env, fmt.Sprint("RANK=", rank), "WORLD_SIZE=4", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1",
			"MASTER_PORT="+port, fmt.Sprint("NCCL_HOSTID=tutti-test-", rank))
		if isGo {
			cmd.Env = append(cmd.Env, "TUTTI_TEST_PYTORCH="+how)
		}
		all.Go(func() {
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "well ") {
				t.Errorf("rank %d: %v\n%s", rank, err, out)
				cancel()
				return
			}
			_, well, _ := strings.Cut(string(out), "well ")
			t.Logf("rank %d: %s", rank, strings.TrimSpace(well))
		})
	}
	all.Wait()
	t.Logf("%v", time.Since(begin).Round(10*time.Millisecond))
}
