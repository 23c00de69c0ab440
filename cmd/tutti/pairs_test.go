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

// slow is what TUTTI_TEST_SLOW asks for: "rank, time". That rank takes that long
// before every operation.
func slow() func(rank int) {
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

// hot holds that cells of a page's heat maps, by their titles, have one of the colours
// of what is slow: on a busy machine the rest may not be four times as fast.
func hot(path string, titles ...string) error {
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

// TestBenchPairsNamesSlowRank has one of three ranks take much longer than the
// others do on this machine, however busy that is.
func TestBenchPairsNamesSlowRank(t *testing.T) {
	onlyLinux(t)
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
	return hot(page, "0 to 2: [0-9.]+ us", "2 to 0: [0-9.]+ us", "1 to 2: [0-9.]+ us", "2 to 1: [0-9.]+ us", "broadcast 8, rank 2")
}

// TestBenchPairsNamesSlowLink slows what one of three hosts sends to another: 1 MiB
// takes 200 ms, longer than on any busy machine.
func TestBenchPairsNamesSlowLink(t *testing.T) {
	onlyLinux(t)
	hosts := network(t, 3)
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
		j.nothingLeft(t)
	}
	// A busy machine may make others slow, too, but none as slow as this.
	out := jobs[0].out.String()
	if !strings.Contains(out, "slow: the link from rank 2 to rank 1 is slow") {
		t.Errorf("the link is not named:\n%s", out)
	}
	if err := hot(page, "2 to 1: [0-9.]+ GB/s"); err != nil {
		t.Error(err)
	}
	slowest(t, page, "2 to 1")
}

// slowest holds that of a page's speeds between ranks one is the lowest.
func slowest(t *testing.T, path, link string) {
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
