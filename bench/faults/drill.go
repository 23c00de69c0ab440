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

// In a drill of three ranks, rank 2 has the fault. Ranks 0 and 1 are in the
// state that is tried, except that where rank 2 itself must be blocked rank 1
// calls nothing and only listens.
const (
	drillSize = 3
	victim    = drillSize - 1
)

// shrinking is the state in which rank 2 itself is in Shrink, too, and waits for
// rank 1, which comes after the fault.
const shrinking = "shrinking"

var (
	states = []string{"init", "collective", "message", "idle", "close", "shrink"}
	faults = []string{"kill", "stop", "cut", "cancel", "mismatch", "abort"}
	// senseless says why some cells have no meaning.
	senseless = map[string]string{
		"init abort":    "there is no Comm to abort",
		"idle cancel":   "there is no operation",
		"idle mismatch": "there is no operation",
		"close cancel":  "Close takes no context",
		"close abort":   "the others have left already",
	}
	// errorNames are how kinds of error are printed.
	errorNames = map[string]string{
		"lost": "ErrRankLost", "timeout": "ErrTimeout", "mismatch": "ErrMismatch", "aborted": "ErrAborted", "closed": "ErrClosed",
		"invalid": "ErrInvalid", "excluded": "ErrExcluded",
	}
)

// A drilling says how the drill is done.
type drilling struct {
	silence  time.Duration // how long a host may not answer
	patience time.Duration // how long Shrink waits for ranks of which nothing is known; 0: opTime
	only     string        // a state, or a state and a fault; "": all
	out      io.Writer
}

// drill tries each fault in each state, and writes a table: after how long the
// last of those was told who are to be, and what.
func drill(transport string, o drilling) error {
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

// cell is what the table says of a fault in a state.
func (o *drilling) cell(transport, state, fault string) (string, error) {
	switch name := state + " " + fault; {
	case !strings.HasPrefix(name, o.only):
		return "", nil
	case senseless[name] != "":
		return senseless[name], nil
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

// expected is what ranks 0 and 1 are to be told, and what rank 2, if it is alive
// and told without being asked: kinds of error, "none", or "some" error.
func expected(state, fault string) (others, own string) {
	shrink := state == "shrink" || state == shrinking
	switch fault {
	case "kill", "cut":
		others = "lost"
	case "stop":
		others = "timeout"
	case "cancel", "abort":
		others, own = "aborted", "aborted"
	case "mismatch":
		others, own = "mismatch", "mismatch"
	}
	switch {
	case state == "init":
		// Whose deadline is first tells the others by leaving.
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
			own = "aborted"
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

// try is one trial.
func (o *drilling) try(transport, state, fault string) (string, error) {
	job := spec{ranks: drillSize, transport: transport, state: state, env: []string{
		"FAULTS_FAULT=" + fault, fmt.Sprint("FAULTS_SILENCE=", o.silence), fmt.Sprint("FAULTS_PATIENCE=", cmp.Or(o.patience, opTime)),
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
			k.say("begin")
		}
	}
	if err := j.settled(state); err != nil {
		return "", err
	}
	f := &fate{job: j, state: state, fault: fault, begin: time.Now(), ends: make(map[int]end)}
	if err := f.strike(); err != nil {
		return "", err
	}
	told := []int{0, 1}
	if state == "init" && fault == "cancel" {
		told = []int{0} // rank 1 does not come
	}
	others, own := expected(state, fault)
	if own != "" {
		told = append(told, victim)
	}
	if err := f.hear(told); err != nil {
		return "", err
	}
	if err := f.happened(); err != nil {
		return "", err
	}
	for r, e := range f.ends {
		want := others
		if r == victim {
			want = own
		}
		if err := f.judge(r, e, want); err != nil {
			return "", err
		}
	}
	return f.text(told), nil
}

// settled waits until the ranks are in the state.
func (j *job) settled(state string) error {
	if j.net != nil && state != "init" {
		// They have exchanged something large.
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

// A fate is what happens to rank 2, and what became of all.
type fate struct {
	job          *job
	state, fault string
	begin        time.Time
	ends         map[int]end
	sent, heard  uint64 // by its host, before the network was cut
}

// strike does it.
func (f *fate) strike() (err error) {
	v := f.job.ranks[victim]
	switch f.fault {
	case "kill":
		err = v.cmd.Process.Kill()
	case "stop":
		err = v.stop()
	case "cut":
		host := f.job.hosts[victim]
		if err = f.job.net.Disconnect(host); err == nil {
			f.sent, f.heard, err = f.job.net.Traffic(host)
		}
		v.say("go")
	default:
		v.say("go")
	}
	if err != nil {
		return err
	}
	switch {
	case f.state == shrinking && f.fault == "cancel":
		// Rank 1 comes after that.
		if err := f.hear([]int{victim}); err != nil {
			return err
		}
		f.job.ranks[1].say("go")
	case f.state == shrinking:
		f.job.ranks[1].say("go")
	case f.state == "idle" && f.fault == "stop":
		// Nobody notices while nobody needs it.
		f.job.ranks[0].say("go")
		f.job.ranks[1].say("go")
	}
	return nil
}

// hear waits for what ranks are told.
func (f *fate) hear(ranks []int) error {
	for _, r := range ranks {
		if _, known := f.ends[r]; known {
			continue
		}
		ends, err := f.job.ends([]int{r})
		if err != nil {
			return err
		}
		f.ends[r] = ends[r]
	}
	return nil
}

// happened makes sure that the fault did. A rank that was stopped goes on, and
// must be told, too.
func (f *fate) happened() error {
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
		v.say("go")
		own, err := f.job.ends([]int{victim})
		if err != nil {
			return fmt.Errorf("it was stopped and continued: %w", err)
		}
		want := "some"
		if f.state == "shrink" || f.state == shrinking {
			want = "excluded"
		}
		return f.judge(victim, own[victim], want)
	case "cut":
		sent, heard, err := f.job.net.Traffic(f.job.hosts[victim])
		if err != nil || heard > f.heard+chatter || sent <= f.sent {
			return fmt.Errorf("the host of rank %d has sent %d bytes and received %d although it was cut off: %w",
				victim, sent-f.sent, heard-f.heard, err)
		}
	}
	return nil
}

// judge finds out whether a rank was told the right thing.
func (f *fate) judge(rank int, e end, want string) error {
	wrong := func() error { return fmt.Errorf("rank %d was told %s: %q, and not %s", rank, e.Kind, e.Text, want) }
	shrink := f.state == "shrink" || f.state == shrinking
	switch {
	case e.Wrong != "":
		return fmt.Errorf("rank %d: %s", rank, e.Wrong)
	case want == "some" && e.Kind == "none", want != "some" && e.Kind != want:
		return wrong()
	case rank == victim:
		return nil
	case want == "lost" && !e.names(victim), (want == "timeout" || want == "some") && !strings.Contains(e.Text, fmt.Sprint(victim)):
		return fmt.Errorf("rank %d was not told that it is rank %d: %q", rank, victim, e.Text)
	case shrink && e.Size != drillSize-1:
		return fmt.Errorf("rank %d goes on with %d ranks", rank, e.Size)
	}
	return nil
}

// text says what they were told. Who is told the same is one item.
func (f *fate) text(told []int) string {
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

// own reports whether rank 2 is told something else than the others.
func own(state, fault string) bool {
	others, own := expected(state, fault)
	return others != own || fault == "cut"
}

// stop stops a process, and returns when it is.
func (k *rank) stop() error {
	if err := k.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", k.cmd.Process.Pid))
		if err != nil || time.Now().After(end) {
			return fmt.Errorf("it does not stop: %w", err)
		}
		// The state follows the name, which is in brackets.
		if _, state, _ := strings.Cut(string(text), ") "); strings.HasPrefix(state, "T") {
			return nil
		}
	}
}
