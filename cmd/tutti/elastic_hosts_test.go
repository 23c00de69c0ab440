package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/netns"
	"github.com/tutti-go/tutti/internal/proctest"
)

// A cluster is three hosts, which are network namespaces, and the launchers of one
// elastic job with two ranks on each.
type cluster struct {
	net     *netns.Network
	program string
	flags   []string
	nodes   [3]*job // the latest launcher of each node
}

// clusters counts the networks of this process.
var clusters atomic.Int32

// newCluster starts a job, and waits until all ranks have joined. It skips the test where network
// namespaces are not available. The test's cleanup removes the network.
func newCluster(t *testing.T, program string, flags ...string) *cluster {
	t.Helper()
	network, err := netns.New(100+int(clusters.Add(1)), 3, false)
	if errors.Is(err, netns.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{net: network, program: program, flags: flags}
	for n := range c.nodes {
		c.start(t, n)
	}
	for _, j := range c.nodes {
		j.out.Await(t, " of 6 from step", 2)
	}
	return c
}

// launcher returns a launcher of a node that is not started yet.
func (c *cluster) launcher(t *testing.T, node int, flags ...string) *job {
	t.Helper()
	all := append([]string{
		"-nodes", "3", "-node", strconv.Itoa(node), "-addr", c.net.Addr(0) + ":29400", "-lost-time", "3s", "-grace", "2s",
	}, flags...)
	j := newJob(t, "elastic", []string{"TUTTI_SECRET=0123456789abcdef0123456789abcdef"}, all...)
	args := append(j.cmd.Args[1:len(j.cmd.Args)-1:len(j.cmd.Args)-1], c.program, "-steps", "1000000000", "-pause", "1ms", "-host-timeout", "2s")
	inside := c.net.Command(t.Context(), node, j.cmd.Path, args...)
	inside.Env, inside.Stdout, inside.Stderr = j.cmd.Env, j.cmd.Stdout, j.cmd.Stderr
	j.cmd = inside
	return j
}

// start starts the launcher of a node with the same command line.
func (c *cluster) start(t *testing.T, node int) *job {
	t.Helper()
	j := c.launcher(t, node, c.flags...)
	j.begin(t)
	c.nodes[node] = j
	return j
}

// finish ends the job. All remaining launchers must report the same exact sum, and the
// given texts.
func (c *cluster) finish(t *testing.T, says ...string) {
	t.Helper()
	if err := c.nodes[0].cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]bool)
	for n, j := range c.nodes {
		if code := j.wait(t); code != 0 {
			t.Errorf("node %d: code %d:\n%s", n, code, &j.out)
		}
		j.checkSums(t, 2)
		sums[regexp.MustCompile(`the sum of .*`).FindString(j.out.String())] = true
		j.checkOutput(t, says...)
		j.checkNoProcesses(t)
	}
	if len(sums) != 1 {
		t.Errorf("the hosts have different sums: %v", sums)
	}
}

// killHost kills all processes of a host at once, as a power failure does. It stops the leader
// first, and returns when all have exited.
func (j *job) killHost(t *testing.T) {
	t.Helper()
	if pids := j.processes(); len(pids) != 5 { // three launcher processes, two ranks
		t.Fatalf("the host has processes %v", pids)
	}
	// The leader would report that the other processes are killed.
	proctest.Stop(t, j.launchers(t)[leader])
	for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
		pids := j.processes()
		if len(pids) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("processes %v cannot be killed", pids)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the environment shows that the test started it
		}
	}
	if code := j.wait(t); code != -1 {
		t.Fatalf("the launcher was not killed, code %d", code)
	}
}

// awaitShrunk waits until the ranks of nodes 0 and 1 continue as four.
func (c *cluster) awaitShrunk(t *testing.T) {
	t.Helper()
	for _, j := range c.nodes[:2] {
		j.out.Await(t, " of 4 from step", 2)
	}
}

// TestElasticHosts runs examples/elastic on three hosts, and loses one of them.
func TestElasticHosts(t *testing.T) {
	skipUnlessLinux(t)
	if testing.Short() {
		t.Skip("it waits for silent hosts")
	}
	program := buildElastic(t)
	for _, c := range []struct {
		name string
		test func(t *testing.T, program string)
	}{
		{"replaced", hostReplaced},
		{"too few", hostTooFew},
		{"cut off", hostCutOff},
		{"stopped", hostStopped},
		{"half killed", hostHalfKilled},
		{"declared lost", func(t *testing.T, program string) { hostDeclaredLost(t, program, false) }},
		{"declared lost and stopped", func(t *testing.T, program string) { hostDeclaredLost(t, program, true) }},
		{"node 0 stopped", hostZeroStopped},
		{"node 0 lost", hostZeroLost},
		{"all over again", hostRestart},
		{"refused", hostRefused},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, program) })
	}
}

// hostReplaced kills a host and starts it again, and also kills a rank.
func hostReplaced(t *testing.T, program string) {
	c := newCluster(t, program, "-elastic", "3:6")
	c.nodes[2].killHost(t)
	c.awaitShrunk(t)
	kill(t, c.nodes[1].process(t, 3, 4, false))
	c.nodes[1].out.Await(t, " of 4 from step", 4) // its replacement is admitted
	c.start(t, 2).out.Await(t, " of 6 from step", 2)
	c.finish(t, "tutti: node 2 was lost after ", ": no heartbeat of its launcher for 3", ", and with it ranks 4 and 5; process ",
		" and was admitted as rank ")
	c.nodes[1].checkOutput(t, "tutti: rank 3 was lost after ", "killed by SIGKILL; replacement 1 started after ", " and was admitted as rank 3 of 4\n")
}

// hostTooFew loses a host without which too few ranks remain.
func hostTooFew(t *testing.T, program string) {
	c := newCluster(t, program, "-elastic", "5:6")
	c.nodes[2].killHost(t)
	for n, j := range c.nodes[:2] {
		if code := j.wait(t); code != 1 {
			t.Errorf("node %d: code %d", n, code)
		}
		j.checkOutput(t, "tutti: 4 of 6 ranks are left, and 5 are needed\n", "tutti: node 2 is lost: no heartbeat of its launcher for 3",
			"tutti: node 2 was lost after ", "; no host replaced it\n", fmt.Sprintf("tutti: rank %d ", 2*n), "ended by tutti: killed by SIGTERM\n")
		j.checkNoProcesses(t)
	}
}

// hostCutOff interrupts the network of a host: its launcher ends its ranks. When the
// network works again, the host rejoins.
func hostCutOff(t *testing.T, program string) {
	c := newCluster(t, program, "-elastic", "3:6")
	if err := c.net.Disconnect(2); err != nil {
		t.Fatal(err)
	}
	cut := c.nodes[2]
	if code := cut.wait(t); code != 1 {
		t.Errorf("code %d", code)
	}
	cut.checkOutput(t, "tutti: node 0 is lost: ")
	cut.checkNoProcesses(t)
	c.awaitShrunk(t)
	if err := c.net.Reconnect(2); err != nil {
		t.Fatal(err)
	}
	c.start(t, 2).out.Await(t, " of 6 from step", 2)
	c.finish(t, ": no heartbeat of its launcher for 3", ", and with it ranks 4 and 5; process ", " and was admitted as rank ")
}

// hostStopped stops a launcher by a signal: its host leaves at once, the other ranks continue, and
// the host can rejoin.
func hostStopped(t *testing.T, program string) {
	c := newCluster(t, program, "-elastic", "3:6")
	stopped := c.nodes[2]
	if err := stopped.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := stopped.wait(t); code != 128+int(syscall.SIGTERM) {
		t.Errorf("code %d", code)
	}
	stopped.checkOutput(t, "tutti: stopped by SIGTERM; this host leaves the job\n")
	stopped.checkNoProcesses(t)
	c.awaitShrunk(t)
	c.start(t, 2).out.Await(t, " of 6 from step", 2)
	c.finish(t, ": stopped by SIGTERM, and with it ranks 4 and 5; process ", " and was admitted as rank ")
}

// hostHalfKilled kills one of a launcher's three processes: the others end the host's
// ranks, and the job continues.
func hostHalfKilled(t *testing.T, program string) {
	c := newCluster(t, program, "-elastic", "3:6")
	half := c.nodes[1]
	kill(t, half.cmd.Process.Pid)
	if code := half.wait(t); code != -1 {
		t.Fatalf("it was not killed, code %d", code)
	}
	half.awaitNoProcesses()
	for _, n := range []int{0, 2} {
		c.nodes[n].out.Await(t, " of 4 from step", 2)
	}
	c.start(t, 1).out.Await(t, " of 6 from step", 2)
	c.finish(t, "tutti: node 1 was lost after ", ": a launcher process was killed, and with it ranks 2 and 3; process ")
}

// hostDeclaredLost freezes a launcher whose ranks are healthy. The ranks continue,
// later actions of the launcher do not end the job, and no other launcher can take its
// place until it has ended its ranks. If it is also stopped by a signal, it tries to
// leave the job at the moment at which it learns that it is lost.
func hostDeclaredLost(t *testing.T, program string, stopped bool) {
	c := newCluster(t, program, "-elastic", "3:6")
	frozen := c.nodes[2]
	proctest.Stop(t, frozen.launchers(t)[leader])
	next := c.start(t, 2) // its place is not free
	for _, j := range c.nodes[:2] {
		j.out.Await(t, "tutti: node 2 is lost: no heartbeat of its launcher for 3", 1)
		j.checkOutput(t, ", and with it ranks 4 and 5; 4 of 6 ranks are left\n")
		if strings.Contains(j.out.String(), " of 4 from step") {
			t.Errorf("the job has gone on without the ranks of the frozen launcher:\n%s", &j.out)
		}
	}
	if text := next.out.String(); text != "" {
		t.Errorf("the place was taken: %s", text)
	}
	says := []string{"tutti: node 0 declared this host lost: no heartbeat of its launcher for 3", "; its ranks are ended\n"}
	process := frozen.launchers(t)[leader]
	if stopped {
		says = nil // depends on which event it sees first
		if err := syscall.Kill(process, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(process, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := frozen.wait(t); code != 1 && !(stopped && code == 128+int(syscall.SIGTERM)) {
		t.Errorf("code %d:\n%s", code, &frozen.out)
	}
	frozen.checkOutput(t, append(says, "ended by tutti: killed by SIGTERM\n")...)
	frozen.checkNoProcesses(t)
	// Ranks that are not blocked do more than a thousand steps in three seconds.
	c.awaitShrunk(t)
	m := regexp.MustCompile(` of 4 from step (\d+)`).FindStringSubmatch(c.nodes[0].out.String())
	if step, err := strconv.Atoi(m[1]); err != nil || step < 100 {
		t.Errorf("while their launcher was frozen, the ranks have done %s steps: %v", m[1], err)
	}
	next.out.Await(t, " of 6 from step", 2)
	c.finish(t, "tutti: node 2 was lost after ", ", and with it ranks 4 and 5; process ", " and was admitted as rank ")
}

// hostRestart leaves too few ranks. All are started again when the host is back.
func hostRestart(t *testing.T, program string) {
	c := newCluster(t, program, "-elastic", "5:6", "-restarts", "1")
	c.nodes[2].killHost(t)
	for _, j := range c.nodes[:2] {
		j.out.Await(t, "tutti: all ranks are started again when all hosts have joined\n", 1)
	}
	c.start(t, 2).out.Await(t, " of 6 from step", 2)
	for _, j := range c.nodes[:2] {
		j.out.Await(t, " of 6 from step", 4)
	}
	c.finish(t)
}

// hostRefused starts launchers that do not fit the job. Each fails with the reason, which node 0
// also prints, and the job continues.
func hostRefused(t *testing.T, program string) {
	c := newCluster(t, program, "-elastic", "3:6")
	for says, flags := range map[string][]string{
		"it was started with --elastic 2:6, this job with --elastic 3:6": {"-elastic", "2:6"},
		"it was started without --elastic, this job with --elastic 3:6":  {"-n", "2"},
		"node 2 is already in the job: process ":                         {"-elastic", "3:6"},
		"node 2 of this job has 2 ranks, not 1":                          {"-elastic", "3:6", "-n", "1"},
	} {
		j := c.launcher(t, 2, flags...)
		j.begin(t)
		if code := j.wait(t); code != 1 {
			t.Errorf("code %d", code)
		}
		j.checkOutput(t, says)
		j.checkNoProcesses(t)
		c.nodes[0].out.Await(t, says, 1)
	}
	c.finish(t)
}

// hostZeroStopped stops node 0's launcher, which ends the job.
func hostZeroStopped(t *testing.T, program string) {
	c := newCluster(t, program, "-elastic", "1:6")
	if err := c.nodes[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for n, j := range c.nodes {
		if code := j.wait(t); code != 128+int(syscall.SIGTERM) {
			t.Errorf("node %d: code %d:\n%s", n, code, &j.out)
		}
		j.checkOutput(t, "tutti: stopped by SIGTERM\n", fmt.Sprintf("tutti: rank %d ", 2*n), "; ended by tutti: killed by SIGTERM\n")
		j.checkNoProcesses(t)
	}
}

// hostZeroLost kills node 0's host, and with it the store.
func hostZeroLost(t *testing.T, program string) {
	c := newCluster(t, program, "-elastic", "1:6")
	c.nodes[0].killHost(t)
	for n, j := range c.nodes[1:] {
		if code := j.wait(t); code != 1 {
			t.Errorf("node %d: code %d:\n%s", n+1, code, &j.out)
		}
		j.checkOutput(t, "tutti: node 0 is lost: ")
		j.checkNoProcesses(t)
	}
}
