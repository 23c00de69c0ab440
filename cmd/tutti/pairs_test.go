package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
)

// slowFromEnv parses TUTTI_TEST_SLOW: "rank, time". That rank is delayed before every
// operation.
func slowFromEnv() func(rank int) {
	var rank int
	var text string
	if n, _ := fmt.Sscanf(os.Getenv("TUTTI_TEST_SLOW"), "%d %s", &rank, &text); n < 2 {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil
	}
	return func(r int) {
		if r == rank {
			time.Sleep(d)
		}
	}
}

// checkHotCells checks that cells of a page's heat maps, named by their titles, have
// one of the colours for slow. On a busy machine the rest may be less than four times
// as fast.
func checkHotCells(path string, titles ...string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, title := range titles {
		cell := regexp.MustCompile(`<td class="(h\d)" title="` + title + `[^"]*"`).FindSubmatch(page)
		if cell == nil || string(cell[1]) < "h4" {
			return fmt.Errorf("%s is %q on the page", title, cell)
		}
	}
	return nil
}

// TestBenchPairsNamesSlowRank delays one of three ranks by much more than a busy
// machine does.
func TestBenchPairsNamesSlowRank(t *testing.T) {
	skipUnlessLinux(t)
	var err error
	for _, slow := range []string{"15ms", "60ms", "300ms"} {
		if err = namesSlowRank(t, slow); err == nil {
			return
		}
		t.Logf("%s is not slow enough here: %v", slow, err)
	}
	t.Error(err)
}

func namesSlowRank(t *testing.T, slow string) error {
	t.Helper()
	page := filepath.Join(t.TempDir(), "report.html")
	got := tuttiWith(t, []string{"TUTTI_TEST_SLOW=2 " + slow}, "bench", "-n", "3", "--engine", "shm", "--op", "broadcast", "-b", "8", "-e", "8",
		"--iters", "5", "--warmup", "1", "--pairs", "--html", page)
	if got.code != 0 || !strings.Contains(got.out, "slow: rank 2 is slow: 4 of its 4 links stand out") || strings.Count(got.out, "\nslow: ") != 1 {
		return fmt.Errorf("code %d:\n%s%s", got.code, got.out, got.err)
	}
	return checkHotCells(page, "0 to 2: [0-9.]+ us", "2 to 0: [0-9.]+ us", "1 to 2: [0-9.]+ us", "2 to 1: [0-9.]+ us", "broadcast 8, rank 2")
}

// TestBenchPairsNamesSlowLink slows the link from one of three hosts to another: 1 MiB
// takes 200 ms, longer than on any busy machine.
func TestBenchPairsNamesSlowLink(t *testing.T) {
	skipUnlessLinux(t)
	hosts := newNetwork(t, 3)
	for _, line := range []string{
		"qdisc add dev eth0 root handle 1: htb default 1",
		"class add dev eth0 parent 1: classid 1:1 htb rate 10gbit",
		"class add dev eth0 parent 1: classid 1:2 htb rate 40mbit",
		"filter add dev eth0 parent 1: protocol ip u32 match ip dst 10.99.7.2/32 flowid 1:2",
	} {
		if text, err := exec.Command("tc", append([]string{"-n", hosts[2]}, strings.Fields(line)...)...).CombinedOutput(); err != nil {
			t.Skipf("slow links cannot be had here: tc %s: %v %s", line, err, text)
		}
	}
	self := proctest.Self(t)
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip(err)
	}
	page := filepath.Join(t.TempDir(), "report.html")
	var jobs []*job
	for h, name := range hosts {
		j := newJob(t, "tutti", []string{"TUTTI_SECRET=0123456789abcdef0123456789abcdef"})
		j.cmd = commandOf(t, []string{j.mark, "TUTTI_SECRET=0123456789abcdef0123456789abcdef"})
		j.cmd.Path, j.cmd.Args = ip, []string{
			ip, "netns", "exec", name, self, "run", "-nodes", fmt.Sprint(len(hosts)), "-node", fmt.Sprint(h), "-addr", "10.99.7.1:29400", "-n", "1",
			"--", self, "bench", "--op", "barrier", "--iters", "2", "--pairs", "--html", page,
		}
		j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
		j.begin(t)
		jobs = append(jobs, j)
	}
	for h, j := range jobs {
		if code := j.wait(t); code != 0 {
			t.Errorf("host %d: code %d:\n%s", h, code, &j.out)
		}
		j.checkNoProcesses(t)
	}
	// A busy machine may slow other links, but less than this one.
	out := jobs[0].out.String()
	if !strings.Contains(out, "slow: the link from rank 2 to rank 1 is slow") {
		t.Errorf("the link is not named:\n%s", out)
	}
	if err := checkHotCells(page, "2 to 1: [0-9.]+ GB/s"); err != nil {
		t.Error(err)
	}
	checkSlowestLink(t, page, "2 to 1")
}

// checkSlowestLink checks that a link has the lowest bandwidth of a page.
func checkSlowestLink(t *testing.T, path, link string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	least, which := math.Inf(1), ""
	for _, cell := range regexp.MustCompile(`title="(\d to \d): ([0-9.]+) GB/s"`).FindAllSubmatch(page, -1) {
		speed, err := strconv.ParseFloat(string(cell[2]), 64)
		if err != nil {
			t.Fatal(err)
		}
		if speed < least {
			least, which = speed, string(cell[1])
		}
	}
	if which != link {
		t.Errorf("%q is the slowest link on the page, not %q", which, link)
	}
}
