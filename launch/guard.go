package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/envvar"
)

// lifelineName is the environment variable with the number of the leader's lifeline
// descriptor.
const lifelineName = "TUTTI_LIFELINE"

// Lifeline returns the pipe that Guard passed to this process, for Config.Lifeline. It
// is nil in a process that Guard did not start.
func Lifeline() (io.Reader, error) {
	f, err := inheritedFile(lifelineName)
	if f == nil {
		return nil, err
	}
	return f, nil
}

// inheritedFile opens the descriptor whose number is in an environment variable; nil if
// the variable is unset. Child processes do not inherit the descriptor.
func inheritedFile(name string) (*os.File, error) {
	fd, err := envvar.Int(os.Getenv, name, -1)
	switch {
	case err == nil && fd == -1:
		return nil, nil
	case err != nil || fd < 3:
		return nil, &Error{"cannot start the job", fmt.Errorf("%s is %q, not the number of a descriptor; unset it, because only tutti sets it", name, os.Getenv(name))}
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}

// Guard starts cmd, the leader, through a watchdog, forwards signals to it, waits for
// its exit, and returns the exit code. If any one or two of the three processes are
// killed, the rest end all ranks. On Linux, Guard collects the exit of every child of
// this process: the caller must start no other child processes meanwhile.
//
// cmd must start a program that calls Watchdog before anything else. Watchdog and
// leader run in their own sessions without a controlling terminal. A key such as ctrl-C
// therefore reaches them once, through signals, and the terminal does not stop them
// when they write to it (stty tostop).
func Guard(cmd *exec.Cmd, signals <-chan os.Signal) (code int, err error) {
	if os.Getenv(watchdogName) != "" {
		return 1, &Error{"cannot start the job", errors.New("this process was started as the watchdog; the program must call launch.Watchdog before anything else")}
	}
	_ = becomeReaper() // Run reports a failure
	text, err := json.Marshal(newLeaderCommand(cmd))
	if err != nil {
		return 1, &Error{"the watchdog", err}
	}
	cmd.Args = []string{watchdogTitle}
	write, err := startSession(cmd, watchdogName)
	if err != nil {
		return 1, &Error{"the watchdog", err}
	}
	defer write.Close()
	relay := make(chan syscall.Signal, 64)
	defer close(relay)
	go func() {
		_, _ = write.Write(append(text, '\n'))
		for s := range relay {
			_, _ = write.Write([]byte{byte(s)})
		}
	}()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if sig, ok := s.(syscall.Signal); ok {
				select {
				case relay <- sig:
				default: // the watchdog is stopped, and 64 signals are queued already
				}
			}
		case err := <-done:
			return exitCode(cmd, err)
		}
	}
}

// startSession starts a process in its own session. The process inherits the read end of a pipe.
// The environment variable name holds its descriptor number. The caller closes the write end, which
// is returned. After an error both ends are closed.
func startSession(cmd *exec.Cmd, name string) (write *os.File, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, read)
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, name+"="+strconv.Itoa(2+len(cmd.ExtraFiles)))
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setpgid = true, false
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, err
	}
	return write, nil
}

// exitCode kills the descendants that an exited process left behind and returns its
// exit code.
func exitCode(cmd *exec.Cmd, err error) (int, error) {
	killOrphans()
	if cmd.ProcessState == nil {
		return 1, &Error{"the process " + cmd.Path, err}
	}
	code, _ := decodeStatus(cmd.ProcessState.Sys().(syscall.WaitStatus))
	return code, nil
}

// killOrphans kills and collects all children. They were descendants of a process that
// exited without ending them.
func killOrphans() {
	end := time.Now().Add(killTimeout)
	for pause := time.Millisecond; time.Now().Before(end); pause = min(2*pause, 50*time.Millisecond) {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR || pid > 0:
			continue
		case err != nil: // no children
			return
		}
		killDescendants(nil)
		time.Sleep(pause)
	}
}
