package launch

import (
	"os"
	"runtime"
	"syscall"

	"github.com/tutti-go/tutti/internal/cores"
)

// A thread starts processes from one thread of the system: what is set for a
// thread, such as its processors, the processes get, and some systems tie
// their lives to it.
type thread struct{ work chan func() }

// newThread makes a thread that lives until release is closed.
func newThread(release <-chan struct{}) *thread {
	t := &thread{make(chan func())}
	go func() {
		runtime.LockOSThread() // and never unlocked: nobody else gets what was set
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

// start starts a process on some processors; nil means all.
func (t *thread) start(path string, args []string, attr *os.ProcAttr, cpus []int) (pid int, err error) {
	done := make(chan struct{})
	t.work <- func() {
		defer close(done)
		if err = cores.BindThread(cpus); err != nil {
			return
		}
		var p *os.Process
		if p, err = os.StartProcess(path, args, attr); err == nil {
			pid = p.Pid
			err = p.Release() // reap takes its end
		}
	}
	<-done
	return pid, err
}

// reap takes the ends of all children, and closes the channel when there are
// none left. Those that have ended by the time it looks come together: the system
// returns them in no order that tells who was first.
func reap(exits chan<- []ended) {
	defer close(exits)
	for {
		var list []ended
		for how := 0; ; how = syscall.WNOHANG {
			var e ended
			var err error
			e.pid, err = syscall.Wait4(-1, &e.status, how, nil)
			if err == syscall.EINTR {
				continue
			}
			if err != nil || e.pid <= 0 { // no children, or none that has ended
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
