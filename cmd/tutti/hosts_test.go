package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// newNetwork creates hosts as network namespaces behind one bridge, and returns their names. It
// skips the test where this is not permitted. The test's cleanup removes them.
func newNetwork(t *testing.T, hosts int) (names []string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if testing.Short() {
		t.Skip("not in short mode")
	}
	ip := func(args ...string) {
		t.Helper()
		if text, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Skipf("there are no network namespaces here: ip %s: %v %s", strings.Join(args, " "), err, text)
		}
	}
	add := func(name string) {
		t.Helper()
		ip("netns", "add", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		ip("-n", name, "link", "set", "lo", "up")
	}
	id := fmt.Sprintf("tutti%d", os.Getpid())
	hub := id + "hub"
	add(hub)
	ip("-n", hub, "link", "add", "br0", "type", "bridge")
	ip("-n", hub, "link", "set", "br0", "up")
	for h := range hosts {
		name := fmt.Sprintf("%sh%d", id, h)
		add(name)
		port := fmt.Sprintf("port%d", h)
		ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", hub)
		ip("-n", hub, "link", "set", port, "master", "br0", "up")
		ip("-n", name, "addr", "add", fmt.Sprintf("10.99.7.%d/24", h+1), "dev", "eth0")
		ip("-n", name, "link", "set", "eth0", "up")
		names = append(names, name)
	}
	return names
}

// startHosts starts a job with two ranks on each host, and does not wait for them.
func startHosts(t *testing.T, hosts []string, act string, flags ...string) (jobs []*job) {
	t.Helper()
	for h, name := range hosts {
		all := append([]string{"-nodes", fmt.Sprint(len(hosts)), "-node", fmt.Sprint(h), "-addr", "10.99.7.1:29400", "-n", "2"}, flags...)
		j := newJob(t, act, []string{"TUTTI_SECRET=0123456789abcdef0123456789abcdef"}, all...)
		ip, err := exec.LookPath("ip")
		if err != nil {
			t.Skip(err)
		}
		j.cmd.Args = append([]string{ip, "netns", "exec", name}, append([]string{j.cmd.Path}, j.cmd.Args[1:]...)...)
		j.cmd.Path = ip
		j.begin(t)
		jobs = append(jobs, j)
	}
	return jobs
}

// TestHosts joins hosts with encryption, has a rank of one fail, and loses a host. In each case all
// launchers end and leave no process.
func TestHosts(t *testing.T) {
	skipUnlessLinux(t)
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			hosts := newNetwork(t, n)
			sum := 2 * n * (2*n - 1) / 2
			for h, j := range startHosts(t, hosts, "hello") {
				code := j.wait(t)
				for r := 2 * h; r < 2*h+2; r++ {
					if want := fmt.Sprintf("[%d] sum %d of %d", r, sum, 2*n); code != 0 || !strings.Contains(j.out.String(), want) {
						t.Errorf("host %d: code %d, want %q:\n%s", h, code, want, &j.out)
					}
				}
				j.checkNoProcesses(t)
			}
			for h, j := range startHosts(t, hosts, "exit 3") {
				if code := j.wait(t); code != 3 || !strings.Contains(j.out.String(), "rank 1 failed first: exit code 3") {
					t.Errorf("host %d: code %d:\n%s", h, code, &j.out)
				}
				j.checkNoProcesses(t)
			}
			if n == 2 {
				return // three hosts cover the case of two
			}
			jobs := startHosts(t, hosts, "gentle", "-lost-time", "4s", "-grace", "1s")
			for _, j := range jobs {
				j.out.Await(t, "ready", 2)
			}
			cut := hosts[n-1]
			if text, err := exec.Command("ip", "-n", cut, "link", "set", "eth0", "down").CombinedOutput(); err != nil {
				t.Fatal(err, string(text))
			}
			for h, j := range jobs {
				code, says := j.wait(t), fmt.Sprintf("node %d is lost", n-1)
				if h == n-1 {
					says = "node 0 is lost"
				}
				if code != 1 || !strings.Contains(j.out.String(), says) {
					t.Errorf("host %d: code %d, want %q:\n%s", h, code, says, &j.out)
				}
				j.checkNoProcesses(t)
			}
		})
	}
	if left, _ := filepath.Glob(fmt.Sprintf("/run/netns/tutti%d*", os.Getpid())); len(left) > 0 {
		t.Error("namespaces are left:", left)
	}
}
