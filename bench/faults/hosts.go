package main

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/netns"
)

// hostsOptions are the options of trials with whole hosts: three hosts with two
// ranks of examples/elastic on each. A host other than node 0 is lost with its
// launcher, and later replaced by the same tutti run command.
type hostsOptions struct {
	trials int
	seed   uint64
	out    io.Writer // for the table
	log    io.Writer // a line for each trial

	net            *netns.Network
	tutti, elastic string // paths of programs
	dir            string
}

const (
	hostCount    = 3
	hostRanks    = 2
	hostLostTime = 2 * time.Second // --lost-time, and the ranks' Config.HostTimeout
	markName     = "FAULTS_MARK"
)

// A hostTrial is a fault of a host, and when the other hosts had recovered.
type hostTrial struct {
	fault    string // "killed" or "cut off"
	host     int
	early    bool          // the new launcher started before the old one was given up
	survived time.Duration // from the fault until the other ranks worked without the host
	replaced time.Duration // from the fault until all ranks worked again

	received uint64 // bytes that had reached the host when it was cut off
}

// hostsAll builds the programs, runs the trials one after the other, and writes a table at the end.
// The first trial that fails ends it without a table. It removes the network and the folder in any
// case.
func hostsAll(o hostsOptions) (err error) {
	if o.dir, err = os.MkdirTemp("", "faults-hosts-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	o.tutti, o.elastic = filepath.Join(o.dir, "tutti"), filepath.Join(o.dir, "elastic")
	for path, pkg := range map[string]string{o.tutti: "cmd/tutti", o.elastic: "examples/elastic"} {
		if text, err := exec.Command("go", "build", "-o", path, "github.com/tutti-go/tutti/"+pkg).CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w: %s", pkg, err, text)
		}
	}
	if o.net, err = netns.New(int(networkCount.Add(1)), hostCount, false); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.net.Close()) }()
	random := rand.New(rand.NewPCG(o.seed, 0))
	var done []hostTrial
	for i := range o.trials {
		t := hostTrial{fault: []string{"killed", "cut off"}[i%2], host: 1 + random.IntN(hostCount-1), early: random.IntN(2) == 0}
		if err := o.try(&t, time.Duration(random.Int64N(int64(300*time.Millisecond)))); err != nil {
			return fmt.Errorf("trial %d, seed %d, node %d is %s: %w", i+1, o.seed, t.host, t.fault, err)
		}
		fmt.Fprintf(o.log, "trial %d of %d: node %d was %s; 4 ranks after %v, 6 after %v\n",
			i+1, o.trials, t.host, t.fault, t.survived.Round(time.Millisecond), t.replaced.Round(time.Millisecond))
		done = append(done, t)
	}
	return hostTable(o.out, done)
}

// hostTable writes the results.
func hostTable(out io.Writer, done []hostTrial) error {
	fmt.Fprintf(out, "| the host was | trials | exact sum, true reports | others go on after: median, most | replaced after: median, most |\n| --- | --- | --- | --- | --- |\n")
	for _, fault := range []string{"killed", "cut off"} {
		var survived, replaced []time.Duration
		for _, t := range done {
			if t.fault == fault {
				survived, replaced = append(survived, t.survived), append(replaced, t.replaced)
			}
		}
		if n := len(survived); n > 0 {
			slices.Sort(survived)
			slices.Sort(replaced)
			round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
			fmt.Fprintf(out, "| %s | %d | %d | %v, %v | %v, %v |\n", fault, n, n,
				round(survived[n/2]), round(survived[n-1]), round(replaced[n/2]), round(replaced[n-1]))
		}
	}
	return nil
}

// A hostLauncher is a process of tutti run.
type hostLauncher struct {
	cmd  *exec.Cmd
	out  lockedText
	mark string        // in the environment of all its processes
	done chan struct{} // closed after Wait has returned; cmd.ProcessState is valid from then on
}

// start starts the launcher of a node, always with the same command. A goroutine waits for its exit
// and then closes done.
func (o *hostsOptions) start(node int) (*hostLauncher, error) {
	l := &hostLauncher{mark: markName + "=" + crand.Text(), done: make(chan struct{})}
	l.cmd = o.net.Command(context.Background(), node, o.tutti, "run",
		"--nodes", strconv.Itoa(hostCount), "--node", strconv.Itoa(node), "--addr", o.net.Addr(0)+":29400",
		"--elastic", fmt.Sprintf("%d:%d", hostRanks, hostCount*hostRanks), "--lost-time", hostLostTime.String(), "--grace", "2s",
		"--", o.elastic, "-steps", "1000000000", "-pause", "1ms", "-host-timeout", hostLostTime.String())
	l.cmd.Env = append(os.Environ(), "TUTTI_SECRET="+jobSecret, l.mark)
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.out
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = l.cmd.Wait()
		close(l.done)
	}()
	return l, nil
}

// await waits until a launcher, or its ranks, have printed a text the given number
// of times.
func (l *hostLauncher) await(text string, times int) error {
	for end := time.Now().Add(patience); strings.Count(l.out.String(), text) < times; time.Sleep(time.Millisecond) {
		select {
		case <-l.done:
			if strings.Count(l.out.String(), text) < times {
				return fmt.Errorf("it ended without %q: %s", text, &l.out)
			}
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("no %q for %v: %s", text, patience, &l.out)
		}
	}
	return nil
}

// wait waits until the launcher exits.
func (l *hostLauncher) wait() error {
	select {
	case <-l.done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("it does not end: %s", &l.out)
	}
}

// left returns the launcher's processes, including itself.
func (l *hostLauncher) left() (pids []int) {
	list, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range list {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(l.mark)) {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill kills all processes of a launcher. It stops them first, so that none detects
// the death of another.
func (l *hostLauncher) kill() error {
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range l.left() {
			_ = syscall.Kill(pid, sig) // the mark identifies the processes of this trial
		}
	}
	for end := time.Now().Add(patience); len(l.left()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("processes %v cannot be killed", l.left())
		}
	}
	return l.wait()
}

// try runs one trial. It starts an elastic job on three hosts, loses one of them at moment, starts a new
// launcher in its place, and stops the job by SIGUSR1, on which the ranks of node 0 finish their sum.
// It then checks the sum and what the launchers report. If the new launcher is to start early, it starts
// before the old one is given up.
func (o *hostsOptions) try(t *hostTrial, moment time.Duration) (err error) {
	nodes := make([]*hostLauncher, hostCount)
	var all []*hostLauncher
	defer func() {
		for _, l := range all {
			err = errors.Join(err, l.kill())
		}
	}()
	begin := func(node int) error {
		l, err := o.start(node)
		if err == nil {
			nodes[node], all = l, append(all, l)
		}
		return err
	}
	const allRanks, fewer = hostCount * hostRanks, (hostCount - 1) * hostRanks
	for n := range nodes {
		if err := begin(n); err != nil {
			return err
		}
	}
	for n, l := range nodes {
		if err := l.await(fmt.Sprintf(" of %d from step", allRanks), hostRanks); err != nil {
			return fmt.Errorf("node %d: %w", n, err)
		}
	}
	time.Sleep(moment) // the moment is random
	struck := time.Now()
	if err := o.inject(t, nodes[t.host]); err != nil {
		return err
	}
	if t.early && t.fault == "killed" {
		if err := begin(t.host); err != nil {
			return err
		}
	}
	for n, l := range nodes {
		if n == t.host {
			continue
		}
		if err := l.await(fmt.Sprintf(" of %d from step", fewer), hostRanks); err != nil {
			return fmt.Errorf("node %d: %w", n, err)
		}
	}
	t.survived = time.Since(struck)
	if t.fault == "cut off" {
		if err := o.reconnect(t, nodes[t.host]); err != nil {
			return err
		}
	}
	if !t.early || t.fault == "cut off" {
		if err := begin(t.host); err != nil {
			return err
		}
	}
	if err := nodes[t.host].await(fmt.Sprintf(" of %d from step", allRanks), hostRanks); err != nil {
		return fmt.Errorf("the new launcher: %w", err)
	}
	t.replaced = time.Since(struck)
	if err := nodes[0].cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return err
	}
	return t.check(nodes)
}

// inject kills all processes of the host, or disconnects it. It returns an error unless the host
// had its full number of processes before, and the fault really happened.
func (o *hostsOptions) inject(t *hostTrial, l *hostLauncher) error {
	if list := l.left(); len(list) != 3+hostRanks { // a launcher has three processes
		return fmt.Errorf("before the fault the host has processes %v", list)
	}
	if t.fault == "cut off" {
		err := o.net.Disconnect(t.host)
		if err == nil {
			_, t.received, err = o.net.Traffic(t.host)
		}
		return err
	}
	if err := l.kill(); err != nil {
		return err
	}
	if status, ok := l.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("the launcher was not killed: %v", l.cmd.ProcessState)
	}
	return nil
}

// reconnect connects a host again, after its launcher has ended its ranks. No data
// may have reached the host meanwhile.
func (o *hostsOptions) reconnect(t *hostTrial, l *hostLauncher) error {
	if err := l.wait(); err != nil {
		return err
	}
	if code := l.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(l.out.String(), "tutti: node 0 is lost: ") {
		return fmt.Errorf("the launcher that was cut off ended with code %d: %s", code, &l.out)
	}
	if list := l.left(); len(list) > 0 {
		return fmt.Errorf("the launcher that was cut off has left processes %v", list)
	}
	if _, received, err := o.net.Traffic(t.host); err != nil || received > t.received+backgroundBytes {
		return fmt.Errorf("%d bytes have reached the host although it was cut off: %w", received-t.received, err)
	}
	return o.net.Reconnect(t.host)
}

var (
	sumLine  = regexp.MustCompile(`the sum of (\d+) squares is (\d+)\n`)
	lossLine = regexp.MustCompile(`tutti: .* was lost after .*\n`)
)

// check checks that the sum is exact and that the reports of the launchers are
// true.
func (t *hostTrial) check(nodes []*hostLauncher) error {
	first := t.host * hostRanks
	loss := regexp.MustCompile(fmt.Sprintf(`^tutti: node %d was lost after [\w.µ]+: no heartbeat of its launcher for [\w.]+, and with it ranks %d and %d; process \d+ on \S+ replaced it after [\w.µ]+, and was admitted as rank [45] of [56], rank [45] of [56]\n$`,
		t.host, first, first+1))
	var sums []string
	for n, l := range nodes {
		if err := l.wait(); err != nil {
			return fmt.Errorf("node %d: %w", n, err)
		}
		wrong := func(what string) error { return fmt.Errorf("node %d: %s: %s", n, what, &l.out) }
		text := l.out.String()
		if code := l.cmd.ProcessState.ExitCode(); code != 0 {
			return wrong(fmt.Sprintf("code %d", code))
		}
		found := sumLine.FindAllStringSubmatch(text, -1)
		if len(found) != hostRanks {
			return wrong(fmt.Sprintf("%d ranks have a sum", len(found)))
		}
		for _, m := range found {
			count, err := strconv.Atoi(m[1])
			if err != nil || strconv.Itoa((count-1)*count*(2*count-1)/6) != m[2] {
				return wrong("the sum is not exact")
			}
			sums = append(sums, m[0])
		}
		if losses := lossLine.FindAllString(text, -1); len(losses) != 1 || !loss.MatchString(losses[0]) {
			return wrong(fmt.Sprintf("it reports %q", losses))
		}
		if strings.Contains(text, "failed first") {
			return wrong("it reports a failure")
		}
		if list := l.left(); len(list) > 0 {
			return wrong(fmt.Sprintf("it has left processes %v", list))
		}
	}
	if len(slices.Compact(sums)) != 1 {
		return fmt.Errorf("the ranks have different sums: %q", sums)
	}
	return nil
}
