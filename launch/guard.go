package launch

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// lifelineName is the variable that tells the leader which descriptor its
// lifeline is.
const lifelineName = "TUTTI_LIFELINE"

// Lifeline returns what Guard has given this process, for Config.Lifeline. It
// is nil in a process that Guard has not started.
func Lifeline() io.Reader {
	f := inheritedFile(lifelineName)
	if f == nil {
		return nil
	}
	return f
}

// inheritedFile opens the descriptor whose number a variable has; nil if it has
// none. Processes that this one starts do not get it.
func inheritedFile(name string) *os.File {
	fd, err := strconv.Atoi(os.Getenv(name))
	if err != nil || fd < 3 {
		return nil
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}

// Guard starts cmd, the leader, through a watchdog, passes signals on to it, waits
// for its end, and returns the code to exit with. If any one or two of the three
// processes are killed, the rest end everything. On Linux Guard takes the end of
// every child of this process: start no others beside it.
//
// cmd must start a program that calls Watchdog first of all. Both processes are in
// sessions of their own, without a controlling terminal: a key that is pressed
// reaches them once, through signals, and the terminal does not stop them when
// they write to it, whatever stty tostop says.
func Guard(cmd *exec.Cmd, signals <-chan os.Signal) (code int, err error) {
	if os.Getenv(watchdogName) != "" {
		return 1, &Error{"it cannot start", errors.New("this process was started as the watchdog; the program must call launch.Watchdog before anything else")}
	}
	_ = becomeReaper() // Run says if it cannot be
	text, err := json.Marshal(newOrder(cmd))
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
				default: // the watchdog is stopped, and has enough of them
				}
			}
		case err := <-done:
			return codeOf(cmd, err)
		}
	}
}

// startSession starts a process in a session of its own. It gets the reading end
// of a pipe, whose descriptor the variable name tells; the writing end is returned.
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

// codeOf ends all that a process that has ended has left, and returns the code to
// exit with.
func codeOf(cmd *exec.Cmd, err error) (int, error) {
	sweepAll()
	if cmd.ProcessState == nil {
		return 1, &Error{"the process " + cmd.Path, err}
	}
	code, _ := exitOf(cmd.ProcessState.Sys().(syscall.WaitStatus))
	return code, nil
}

// sweepAll ends all that is left of a process that was to end it. The process
// is no more, and all that it had is this one's.
func sweepAll() {
	end := time.Now().Add(sweepTime)
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
