package launch

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// watchdogName is the variable that tells the watchdog by which descriptor its
	// orders come.
	watchdogName = "TUTTI_WATCHDOG"
	// watchdogTitle is the watchdog's name and its whole command line. It has
	// nothing in common with the launcher's or the ranks', so that a kill by name,
	// such as pkill -f, does not reach the watchdog together with them.
	watchdogTitle = "rank-watchdog"
)

// An order is what the first launcher process tells the watchdog: which program to
// start. It is sent as a line of JSON. A byte for each signal that is to be passed
// on follows; the end of the file means that the first process has exited.
//
// Arguments are bytes: they need not be UTF-8, which JSON strings are.
type order struct {
	Path []byte   `json:"path"`
	Args [][]byte `json:"args"`
}

func newOrder(cmd *exec.Cmd) order {
	o := order{Path: []byte(cmd.Path)}
	for _, a := range cmd.Args {
		o.Args = append(o.Args, []byte(a))
	}
	return o
}

// Watchdog is all that a process does that Guard has started as its watchdog: it
// starts the leader, and ends everything when the first process or the leader is
// killed. It reports whether this is that process; the program then exits with
// code. A program that calls Guard calls Watchdog before anything else.
func Watchdog() (code int, was bool, err error) {
	orders := inheritedFile(watchdogName)
	if orders == nil {
		return 0, false, nil
	}
	defer orders.Close()
	code, err = watch(orders)
	return code, true, err
}

func watch(orders *os.File) (code int, err error) {
	_ = becomeReaper() // Run says if it cannot be
	setTitle(watchdogTitle)
	in := bufio.NewReader(orders)
	text, err := in.ReadBytes('\n')
	if err != nil {
		return 1, nil // the first process was killed before there was anything to end
	}
	var o order
	if err := json.Unmarshal(text, &o); err != nil {
		return 1, &Error{"the watchdog's orders", err}
	}
	cmd := o.command(int(orders.Fd()) - 3)
	lifeline, err := startSession(cmd, lifelineName)
	for _, f := range cmd.ExtraFiles {
		_ = f.Close() // the leader has them
	}
	if err != nil {
		return 1, &Error{"the leader", err}
	}
	defer lifeline.Close()
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		for {
			sig, err := in.ReadByte()
			if err != nil {
				return
			}
			signals <- syscall.Signal(sig)
		}
	}()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var late <-chan time.Time
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case <-lost:
			// The leader ends everything when its lifeline does, unless it is stopped.
			lost, late = nil, time.After(sweepTime)
			lifeline.Close()
		case <-late:
			_ = cmd.Process.Kill()
		case err := <-done:
			return codeOf(cmd, err)
		}
	}
}

// command is the leader, with the environment, the three standard files and the
// further files that the first process had for it.
func (o *order) command(files int) *exec.Cmd {
	cmd := &exec.Cmd{Path: string(o.Path), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	for _, a := range o.Args {
		cmd.Args = append(cmd.Args, string(a))
	}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, watchdogName+"=") })
	for i := range files {
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(3+i), "file"))
	}
	return cmd
}
