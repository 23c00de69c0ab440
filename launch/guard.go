package launch

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// lifelineName is the variable that tells the second launcher process which
// descriptor its lifeline is.
const lifelineName = "TUTTI_LIFELINE"

// Lifeline returns what Guard has given this process, for Config.Lifeline. It
// is nil in a process that Guard has not started.
func Lifeline() io.Reader {
	fd, err := strconv.Atoi(os.Getenv(lifelineName))
	if err != nil || fd < 3 {
		return nil
	}
	syscall.CloseOnExec(fd) // it is not the ranks'
	return os.NewFile(uintptr(fd), "lifeline")
}

// Guard starts the second launcher process, passes signals on to it, waits for
// it, and returns the code to exit with. If either process is killed, the other
// one ends everything. On Linux it takes the end of every child of this
// process: start no others beside it.
//
// The second process is in a process group of its own, so that a key pressed
// at a terminal reaches it once.
func Guard(cmd *exec.Cmd, signals <-chan os.Signal) (code int, err error) {
	_ = becomeReaper() // Run says if it cannot be
	read, write, err := os.Pipe()
	if err != nil {
		return 1, &Error{"the lifeline", err}
	}
	defer write.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, read)
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, lifelineName+"="+strconv.Itoa(2+len(cmd.ExtraFiles)))
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	err = cmd.Start()
	read.Close()
	if err != nil {
		return 1, &Error{"the second launcher process", err}
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case err := <-done:
			sweepAll()
			if cmd.ProcessState == nil {
				return 1, &Error{"the second launcher process", err}
			}
			code, _ := exitOf(cmd.ProcessState.Sys().(syscall.WaitStatus))
			return code, nil
		}
	}
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
