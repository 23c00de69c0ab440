//go:build !linux

package launch

import "syscall"

// becomeReaper does nothing: this system has no subreaper. A process that leaves its
// rank's process group is not tracked.
func becomeReaper() error { return nil }

// setTitle does nothing: this system takes the process name from the executable file.
func setTitle(string) {}

// childAttr puts a rank in its own process group, or in its own session.
func childAttr(session bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: session, Setpgid: !session}
}

// killDescendants kills the ranks' process groups.
func killDescendants(groups []int) {
	for _, pid := range groups {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

// killGroup kills the rest of a process group whose leader has exited.
func killGroup(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }

// isStopped returns false: this system does not show the state of a process in a file.
func isStopped(int) bool { return false }
