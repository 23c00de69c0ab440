//go:build !linux

package launch

import "syscall"

// becomeReaper does nothing: this system has no such thing. What leaves a
// rank's process group is not followed.
func becomeReaper() error { return nil }

// setTitle does nothing: this system names processes by their files.
func setTitle(string) {}

// childAttr puts a rank in a process group of its own, or in a session.
func childAttr(session bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: session, Setpgid: !session}
}

// killDescendants kills what is in the ranks' process groups.
func killDescendants(groups []int) {
	for _, pid := range groups {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

// killGroup kills what is left of a process group whose leader has ended.
func killGroup(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }
