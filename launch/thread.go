package launch

import (
	"os"
	"runtime"
	"syscall"

	"github.com/tutti-go/tutti/internal/affinity"
)

// A thread starts processes from one OS thread. Processes inherit the thread's CPU
// affinity, and Linux sends Pdeathsig when the thread exits.
type thread struct{ work chan func() }

// newThread returns a thread that lives until release is closed. Its goroutine runs the functions
// sent to work, one at a time.
func newThread(release <-chan struct{}) *thread {
	t := &thread{make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine may inherit the affinity
		for {
			select {
			case f := <-t.work:
				f()
			case <-release:
				return
			}
		}
	}()
	return t
}

// start starts a process from the thread, on the given CPUs; nil means all. It waits until the
// process is started or cannot be started. The thread's goroutine sets pid and err before it closes
// done. After release is closed start would block.
func (t *thread) start(path string, args []string, attr *os.ProcAttr, cpus []int) (pid int, err error) {
	done := make(chan struct{})
	t.work <- func() {
		defer close(done)
		if err = affinity.BindThread(cpus); err != nil {
			return
		}
		var p *os.Process
		if p, err = os.StartProcess(path, args, attr); err == nil {
			pid = p.Pid
			err = p.Release() // reap collects its exit
		}
	}
	<-done
	return pid, err
}

// reap collects the exits of all children, and closes the channel when no child is left. Exits that
// are pending at the same time are sent together, because wait4 does not return them in order of
// time. It runs in a goroutine of its own, and blocks while the channel is full.
func reap(exits chan<- []childExit) {
	defer close(exits)
	for {
		var list []childExit
		for {
			options := syscall.WNOHANG
			if len(list) == 0 {
				options = 0 // waits for the first exit
			}
			var e childExit
			var err error
			e.pid, err = syscall.Wait4(-1, &e.status, options, nil)
			if err == syscall.EINTR {
				continue
			}
			if err != nil || e.pid <= 0 { // no children, or no other has exited
				break
			}
			list = append(list, e)
		}
		if len(list) == 0 {
			return
		}
		exits <- list
	}
}
