package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A trial of the drill has three ranks. Rank 2 has the fault. Ranks 0 and 1 are in
// the state of the trial. Exception: where rank 2 itself must be blocked, rank 1
// makes no call and only waits for the failure.
const (
	drillSize = 3
	victim    = drillSize - 1
)

// shrinking is the state in which rank 2 is in Shrink too, and waits for rank 1,
// which calls Shrink after the fault.
const shrinking = "shrinking"

var (
	states = []string{"init", "collective", "message", "idle", "close", "shrink"}
	faults = []string{"kill", "stop", "cut", "cancel", "mismatch", "abort"}
	// undefinedCells says why some combinations have no meaning.
	undefinedCells = map[string]string{
		"init abort":    "there is no Comm to abort",
		"idle cancel":   "there is no operation",
		"idle mismatch": "there is no operation",
		"close cancel":  "Close takes no context",
		"close abort":   "the others have left already",
	}
	// errorNames are the printed names of kinds of errors.
	errorNames = map[string]string{
		"lost": "ErrRankLost", "timeout": "ErrTimeout", "mismatch": "ErrMismatch", "aborted": "ErrAborted", "revoked": "ErrRevoked", "closed": "ErrClosed",
		"invalid": "ErrInvalid", "excluded": "ErrExcluded",
	}
)

// drillOptions are the options of the drill.
type drillOptions struct {
	hostTimeout   time.Duration // how long a host may not answer
	shrinkTimeout time.Duration // how long Shrink waits for ranks whose state is unknown; 0: opTime
	only          string        // a state, or a state and a fault; "": all
	out           io.Writer
}

// drill tries each fault in each state. It writes a table with the time until the last rank that
// must be notified is notified, and with the error. It ends with an error at the first trial that
// fails; rows before it are already written.
func drill(transport string, o drillOptions) error {
	fmt.Fprintf(o.out, "| %s | %s |\n|%s\n", transport, strings.Join(faults, " | "), strings.Repeat(" --- |", 1+len(faults)))
	for _, state := range states {
		row := []string{state}
		for _, fault := range faults {
			text, err := o.cell(transport, state, fault)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", state, fault, err)
			}
			row = append(row, text)
		}
		if len(strings.Join(row[1:], "")) > 0 {
			fmt.Fprintf(o.out, "| %s |\n", strings.Join(row, " | "))
		}
	}
	return nil
}

// cell runs the trials for a fault in a state and returns the text for the table. The text is empty
// for cells that --only leaves out. A failed trial is an error.
func (o *drillOptions) cell(transport, state, fault string) (string, error) {
	switch name := state + " " + fault; {
	case !strings.HasPrefix(name, o.only):
		return "", nil
	case undefinedCells[name] != "":
		return undefinedCells[name], nil
	case fault == "cut" && transport == "shm":
		return "ranks of one host have no network between them", nil
	case state != "shrink", fault == "mismatch", fault == "abort":
		return o.try(transport, state, fault)
	case fault == "cancel":
		return o.try(transport, shrinking, fault)
	}
	before, err := o.try(transport, state, fault)
	if err != nil {
		return "", err
	}
	in, err := o.try(transport, shrinking, fault)
	return fmt.Sprintf("before it has come: %s; when it is in it, too: %s", before, in), err
}

// expected returns the kinds of errors that ranks 0 and 1 must get, and that rank 2
// must get if it is alive and is notified without a call: an error, "none", or
// "some" for any error.
func expected(state, fault string) (others, own string) {
	shrink := state == "shrink" || state == shrinking
	switch fault {
	case "kill", "cut":
		others = "lost"
	case "stop":
		others = "timeout"
	case "cancel":
		others, own = "aborted", "aborted"
	case "abort":
		others, own = "revoked", "revoked"
	case "mismatch":
		others, own = "mismatch", "mismatch"
	}
	switch {
	case state == "init":
		// The rank whose deadline is first notifies the others by leaving.
		others = "some"
		if fault == "mismatch" {
			own = "aborted"
		}
	case state == "close":
		others = "none"
		if fault == "mismatch" {
			own = "lost"
		}
	case shrink:
		others = "none"
		if fault == "mismatch" {
			own = "revoked"
		}
	}
	if fault == "cut" {
		own = "lost"
		if state == "init" {
			own = "timeout"
		} else if shrink {
			own = "some"
		}
	}
	return others, own
}

// try runs one trial in a new job, and returns the text for the table. It returns an error if the
// fault did not happen, if a rank gets another error than expected, or if a step takes longer than
// patience. The job's processes are killed in any case.
func (o *drillOptions) try(transport, state, fault string) (string, error) {
	job := spec{ranks: drillSize, transport: transport, state: state, env: []string{
		"FAULTS_FAULT=" + fault, fmt.Sprint("FAULTS_HOST_TIMEOUT=", o.hostTimeout), fmt.Sprint("FAULTS_SHRINK_TIMEOUT=", cmp.Or(o.shrinkTimeout, opTime)),
	}}
	if fault == "cut" {
		job.hosts = []int{0, 1, 2}
	}
	j, err := start(job)
	if err != nil {
		return "", err
	}
	defer j.end()
	if err := j.awaitAll("ready", []int{0, 1, 2}); err != nil {
		return "", err
	}
	if state != "init" {
		for _, k := range j.ranks {
			k.send("begin")
		}
	}
	if err := j.awaitState(state); err != nil {
		return "", err
	}
	f := &drillTrial{job: j, state: state, fault: fault, begin: time.Now(), ends: make(map[int]end)}
	if err := f.inject(); err != nil {
		return "", err
	}
	told := []int{0, 1}
	if state == "init" && fault == "cancel" {
		told = []int{0} // rank 1 does not join
	}
	others, own := expected(state, fault)
	if own != "" {
		told = append(told, victim)
	}
	if err := f.awaitEnds(told); err != nil {
		return "", err
	}
	if err := f.verifyInjected(); err != nil {
		return "", err
	}
	for r, e := range f.ends {
		want := others
		if r == victim {
			want = own
		}
		if err := f.check(r, e, want); err != nil {
			return "", err
		}
	}
	return f.text(told), nil
}

// awaitState waits until the ranks are in the state. Rank 2 on a host of its own must have sent
// warmBytes over the network. Ranks in Shrink announce it in the store. For other states awaitState
// sleeps, so that the ranks are blocked.
func (j *job) awaitState(state string) error {
	if j.net != nil && state != "init" {
		// The ranks have exchanged warmBytes.
		if sent, _, err := j.net.Traffic(j.hosts[victim]); err != nil || sent < warmBytes {
			return fmt.Errorf("rank %d has sent only %d bytes over the network: %w", victim, sent, err)
		}
	}
	switch state {
	case "shrink":
		return firstError(j.arrived(0), j.arrived(1))
	case shrinking:
		return firstError(j.arrived(0), j.arrived(victim))
	}
	time.Sleep(200 * time.Millisecond) // so that they are blocked
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A drillTrial is the fault of rank 2 and its consequences.
type drillTrial struct {
	job            *job
	state, fault   string
	begin          time.Time
	ends           map[int]end
	sent, received uint64 // by its host, before the network was cut
}

// inject makes the fault happen on rank 2, and then lets ranks that wait for the fault continue. It
// does not wait for the other ranks' errors.
func (f *drillTrial) inject() (err error) {
	v := f.job.ranks[victim]
	switch f.fault {
	case "kill":
		err = v.cmd.Process.Kill()
	case "stop":
		err = v.stop()
	case "cut":
		host := f.job.hosts[victim]
		if err = f.job.net.Disconnect(host); err == nil {
			f.sent, f.received, err = f.job.net.Traffic(host)
		}
		v.send("go")
	default:
		v.send("go")
	}
	if err != nil {
		return err
	}
	switch {
	case f.state == shrinking && f.fault == "cancel":
		// Rank 1 calls Shrink after that.
		if err := f.awaitEnds([]int{victim}); err != nil {
			return err
		}
		f.job.ranks[1].send("go")
	case f.state == shrinking:
		f.job.ranks[1].send("go")
	case f.state == "idle" && f.fault == "stop":
		// No rank detects the fault while no rank needs rank 2.
		f.job.ranks[0].send("go")
		f.job.ranks[1].send("go")
	}
	return nil
}

// awaitEnds waits for the errors of ranks.
func (f *drillTrial) awaitEnds(ranks []int) error {
	for _, r := range ranks {
		if _, known := f.ends[r]; known {
			continue
		}
		ends, err := f.job.awaitEnds([]int{r})
		if err != nil {
			return err
		}
		f.ends[r] = ends[r]
	}
	return nil
}

// verifyInjected checks that the fault happened. A rank that was stopped is
// continued, and must get its error too.
func (f *drillTrial) verifyInjected() error {
	v := f.job.ranks[victim]
	switch f.fault {
	case "kill":
		_ = v.wait()
		if status, ok := v.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			return fmt.Errorf("rank %d was not killed: %v", victim, v.cmd.ProcessState)
		}
	case "stop":
		if err := v.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		v.send("go")
		own, err := f.job.awaitEnds([]int{victim})
		if err != nil {
			return fmt.Errorf("it was stopped and continued: %w", err)
		}
		want := "some"
		if f.state == "shrink" || f.state == shrinking {
			want = "excluded"
		}
		return f.check(victim, own[victim], want)
	case "cut":
		sent, heard, err := f.job.net.Traffic(f.job.hosts[victim])
		if err != nil || heard > f.received+backgroundBytes || sent <= f.sent {
			return fmt.Errorf("the host of rank %d has sent %d bytes and received %d although it was cut off: %w",
				victim, sent-f.sent, heard-f.received, err)
		}
	}
	return nil
}

// check returns an error unless a rank got the expected kind of error. Ranks 0 and 1 must also name
// rank 2 when it is lost or late, and after Shrink must have a Comm of two ranks.
func (f *drillTrial) check(rank int, e end, want string) error {
	wrong := func() error { return fmt.Errorf("rank %d was told %s: %q, and not %s", rank, e.Kind, e.Text, want) }
	shrink := f.state == "shrink" || f.state == shrinking
	switch {
	case e.Wrong != "":
		return fmt.Errorf("rank %d: %s", rank, e.Wrong)
	case want == "some" && e.Kind == "none", want != "some" && e.Kind != want:
		return wrong()
	case rank == victim:
		return nil
	case want == "lost" && !e.namesLost(victim), want == "timeout" && !e.namesAwaited(victim), want == "some" && !e.mentions(victim):
		return fmt.Errorf("rank %d was not told that it is rank %d: %q", rank, victim, e.Text)
	case shrink && e.Size != drillSize-1:
		return fmt.Errorf("rank %d goes on with %d ranks", rank, e.Size)
	}
	return nil
}

// text describes the errors of the ranks. Ranks with the same error are one item.
func (f *drillTrial) text(told []int) string {
	var items []string
	last := make(map[string]time.Duration)
	for _, r := range told {
		e := f.ends[r]
		kind := errorNames[e.Kind]
		switch {
		case e.Size > 0:
			kind = fmt.Sprintf("the others go on, %d ranks,", e.Size)
		case e.Kind == "none":
			kind = "their Close returns"
		}
		if r == victim && own(f.state, f.fault) {
			kind += " on its rank"
		}
		if !slices.Contains(items, kind) {
			items = append(items, kind)
		}
		last[kind] = max(last[kind], time.Unix(0, e.At).Sub(f.begin))
	}
	for i, kind := range items {
		t := last[kind].Round(100 * time.Microsecond)
		if t > time.Second {
			t = t.Round(10 * time.Millisecond)
		}
		items[i] = fmt.Sprintf("%s %v", kind, t)
	}
	return strings.Join(items, ", ")
}

// own reports whether rank 2 gets another error than the other ranks.
func own(state, fault string) bool {
	others, own := expected(state, fault)
	return others != own || fault == "cut"
}

// stop stops a process by SIGSTOP, and returns when the kernel reports it as stopped, at the latest
// after patience with an error.
func (k *rank) stop() error {
	if err := k.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", k.cmd.Process.Pid))
		if err != nil || time.Now().After(end) {
			return fmt.Errorf("it does not stop: %w", err)
		}
		// The state follows the name, which is in parentheses.
		if _, state, _ := strings.Cut(string(text), ") "); strings.HasPrefix(state, "T") {
			return nil
		}
	}
}
