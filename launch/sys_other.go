//go:build !linux

package launch

import "syscall"

// becomeReaper does nothing: this system has no such thing. What leaves a
// rank's process group is not followed.
func becomeReaper() error { return nil }

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// killDescendants kills what is in the ranks' process groups.
func killDescendants(groups []int) {
	for _, pid := range groups {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

// killGroup kills what is left of a process group whose leader has ended.
func killGroup(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }
