package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/proctest"
)

// TestBenchPairsNamesSlowHost slows what one of three hosts sends. It depends on
// what is measured, and so on what else the machine does.
func TestBenchPairsNamesSlowHost(t *testing.T) {
	onlyLinux(t)
	if os.Getenv("TUTTI_TEST_HEAVY") == "" {
		t.Skip("TUTTI_TEST_HEAVY is not set")
	}
	hosts := network(t, 3)
	const slow = 2
	if text, err := exec.Command("tc", "-n", hosts[slow], "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "32k", "latency", "1s").CombinedOutput(); err != nil {
		t.Skipf("slow links cannot be had here: %v %s", err, text)
	}
	self := proctest.Self(t)
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip(err)
	}
	var jobs []*job
	for h, name := range hosts {
		j := newJob(t, "tutti", []string{"TUTTI_SECRET=0123456789abcdef0123456789abcdef"})
		j.cmd = commandOf(t, []string{j.mark, "TUTTI_SECRET=0123456789abcdef0123456789abcdef"})
		j.cmd.Path, j.cmd.Args = ip, []string{
			ip, "netns", "exec", name, self, "run", "-nodes", fmt.Sprint(len(hosts)), "-node", fmt.Sprint(h), "-addr", "10.99.7.1:29400", "-n", "1",
			"--", self, "bench", "--op", "barrier", "--iters", "2", "--pairs",
		}
		j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
		j.begin(t)
		jobs = append(jobs, j)
	}
	for h, j := range jobs {
		if code := j.wait(t); code != 0 {
			t.Errorf("host %d: code %d:\n%s", h, code, &j.out)
		}
		j.nothingLeft(t)
	}
	// A busy machine may make others slow, too.
	for to := range slow {
		if want := fmt.Sprintf("slow: the link from rank %d to rank %d is slow", slow, to); !strings.Contains(jobs[0].out.String(), want) {
			t.Errorf("not %q, but\n%s", want, &jobs[0].out)
		}
	}
}
