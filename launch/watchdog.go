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
	// watchdogName is the environment variable with the number of the descriptor from
	// which the watchdog reads.
	watchdogName = "TUTTI_WATCHDOG"
	// watchdogTitle is the watchdog's process name and its whole command line. It
	// shares no word with those of the launcher or the ranks: a kill by name, such as
	// pkill -f, must not reach the watchdog together with them.
	watchdogTitle = "rank-watchdog"
)

// A leaderCommand tells the watchdog which program to start. The first launcher process
// sends it as a line of JSON. A byte for each signal to forward follows. The end of the
// file means that the first process has exited.
//
// Arguments are byte slices, because they need not be UTF-8 as JSON strings must be.
type leaderCommand struct {
	Path []byte   `json:"path"`
	Args [][]byte `json:"args"`
}

func newLeaderCommand(cmd *exec.Cmd) leaderCommand {
	o := leaderCommand{Path: []byte(cmd.Path)}
	for _, a := range cmd.Args {
		o.Args = append(o.Args, []byte(a))
	}
	return o
}

// Watchdog is the whole work of the watchdog process that Guard starts. It starts the
// leader, and ends all processes when the first process or the leader is killed. was
// reports whether this process is the watchdog; the program must then exit with code. A
// program that calls Guard must call Watchdog before anything else.
func Watchdog() (code int, was bool, err error) {
	pipe, err := inheritedFile(watchdogName)
	if err != nil {
		return 1, true, err
	}
	if pipe == nil {
		return 0, false, nil
	}
	defer pipe.Close()
	code, err = runWatchdog(pipe)
	return code, true, err
}

// runWatchdog starts the leader that the first process describes in pipe, and forwards
// signals to it. When the first process exits, it closes the leader's lifeline, and kills
// the leader after killTimeout. It returns the leader's exit code.
func runWatchdog(pipe *os.File) (code int, err error) {
	_ = becomeReaper() // the leader calls it, too, and reports the error
	setTitle(watchdogTitle)
	in := bufio.NewReader(pipe)
	text, err := in.ReadBytes('\n')
	if err != nil {
		return 1, nil // the first process was killed before it sent a command
	}
	var o leaderCommand
	if err := json.Unmarshal(text, &o); err != nil {
		return 1, &Error{"the watchdog's orders", err}
	}
	cmd := o.command(int(pipe.Fd()) - 3)
	lifeline, err := startSession(cmd, lifelineName)
	for _, f := range cmd.ExtraFiles {
		_ = f.Close() // the leader has inherited them
	}
	if err != nil {
		return 1, &Error{"the leader", err}
	}
	defer lifeline.Close()
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	guardExited := make(chan struct{})
	go func() {
		defer close(guardExited)
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
	var killTimer <-chan time.Time
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case <-guardExited:
			// The leader ends all processes when its lifeline is closed, unless it is
			// stopped.
			guardExited, killTimer = nil, time.After(killTimeout)
			lifeline.Close()
		case <-killTimer:
			_ = cmd.Process.Kill()
		case err := <-done:
			return exitCode(cmd, err)
		}
	}
}

// command returns the leader's command, with the environment, the standard files and
// the first process's extra files.
func (o *leaderCommand) command(files int) *exec.Cmd {
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
