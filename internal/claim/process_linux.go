package claim

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// self returns the identity of this process.
func self() process {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, bad := os.Readlink("/proc/self/ns/pid")
	p := process{ID: os.Getpid()}
	if start, _, ok := stat(p.ID); ok && err == nil && bad == nil {
		p.Host, p.Start = strings.TrimSpace(string(boot))+" "+space, start
	}
	return p
}

// look returns the state of a process of this host.
func (p process) look() fate {
	if err := syscall.Kill(p.ID, 0); errors.Is(err, syscall.ESRCH) {
		return ended
	}
	start, state, ok := stat(p.ID)
	switch {
	case !ok: // it has just exited, or is hidden
		return unknown
	case start != p.Start || state == "Z" || state == "X":
		return ended
	}
	return living
}

// stat reads the start time and the state of a process.
func stat(id int) (start, state string, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return "", "", false
	}
	// The name, in brackets, may contain any characters.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const stateField, startField = 0, 19 // after the name
	if len(fields) <= startField {
		return "", "", false
	}
	return fields[startField], fields[stateField], true
}
