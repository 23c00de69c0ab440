package launch

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper makes this process the parent of every descendant whose own parent exits
// (PR_SET_CHILD_SUBREAPER).
func becomeReaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// setTitle changes the process name that ps, pkill and killall show. It ignores errors:
// the name has no function.
func setTitle(name string) {
	if f, err := os.OpenFile("/proc/self/comm", os.O_WRONLY, 0); err == nil {
		_, _ = f.WriteString(name)
		_ = f.Close()
	}
}

// childAttr puts a rank in its own process group, or in its own session. Pdeathsig ends
// the rank if all launcher processes are killed. It does not reach the rank's children.
func childAttr(session bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: session, Setpgid: !session, Pdeathsig: syscall.SIGKILL}
}

// killDescendants kills every descendant of this process. No descendant can escape:
// this process is the reaper of orphans.
func killDescendants([]int) {
	for _, pid := range descendants(os.Getpid()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// killGroup kills the rest of a process group whose leader has exited. It considers
// descendants only, because the kernel may have reused the group's number.
func killGroup(group int) {
	for _, pid := range descendants(os.Getpid()) {
		if g, err := syscall.Getpgid(pid); err == nil && g == group {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// descendants returns the running children of a process, their children, and so on. The list may
// miss processes that are started meanwhile, so callers that must reach all of them repeat it.
func descendants(of int) []int {
	children := make(map[int][]int)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, dead, ok := parentOf(pid); ok && !dead {
			children[parent] = append(children[parent], pid)
		}
	}
	var all []int
	for next := []int{of}; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		all = append(all, children[pid]...)
	}
	return all
}

// parentOf reads the parent of a process. dead means that the process is a zombie.
func parentOf(pid int) (parent int, dead, ok bool) {
	state, parent, ok := readStat(pid)
	return parent, state == "Z" || state == "X", ok
}

// isStopped reports whether a process is stopped by a signal or a debugger.
func isStopped(pid int) bool {
	state, _, ok := readStat(pid)
	return ok && (state == "T" || state == "t")
}

// readStat reads the state of a process, one letter, and its parent.
func readStat(pid int) (state string, parent int, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", 0, false
	}
	// The process name is in parentheses and may contain any byte.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}
