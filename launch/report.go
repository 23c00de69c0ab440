package launch

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An Exit is how a rank, or a whole host, has ended.
type Exit struct {
	Rank  int           `json:"rank"`            // -1: it was no rank
	Node  int           `json:"node"`            // its host
	Code  int           `json:"code"`            // what a shell would see
	How   string        `json:"how"`             // in words
	After time.Duration `json:"after"`           // from the start of its attempt
	Lines []string      `json:"lines,omitempty"` // the last that it printed
	Doing string        `json:"doing,omitempty"` // how far it had come when the first failed
}

// A Report is how a job has ended, as this host saw it.
type Report struct {
	// Code is what a command should exit with: 0 if all ranks ended well, that
	// of the first rank that failed, or 128 and the signal that ended the job.
	Code int
	// First is what failed first; nil if nothing did.
	First *Exit
	// Ranks are this host's ranks, at the last attempt.
	Ranks []Exit
	// Attempts is how often the ranks were started.
	Attempts int
}

// String says, for people, which rank failed first, how, its last lines, and
// what the others were doing. It is empty if all went well.
func (r *Report) String() string {
	if r.First == nil {
		return ""
	}
	var b strings.Builder
	f := r.First
	switch {
	case f.Rank < 0:
		fmt.Fprintf(&b, "tutti: %s\n", f.How)
	default:
		fmt.Fprintf(&b, "tutti: rank %d failed first: %s after %v\n", f.Rank, f.How, f.After.Round(time.Millisecond))
		for _, l := range f.Lines {
			fmt.Fprintf(&b, "    %s\n", l)
		}
	}
	for _, e := range r.Ranks {
		if e.Rank == f.Rank {
			continue
		}
		fmt.Fprintf(&b, "tutti: rank %d ", e.Rank)
		if e.Doing != "" {
			fmt.Fprintf(&b, "%s; ", e.Doing)
		}
		fmt.Fprintf(&b, "%s\n", e.How)
	}
	if r.Attempts > 1 {
		fmt.Fprintf(&b, "tutti: that was attempt %d\n", r.Attempts)
	}
	return b.String()
}

// exitOf puts a process's end in words.
func exitOf(ws syscall.WaitStatus) (code int, how string) {
	switch {
	case ws.Signaled():
		return 128 + int(ws.Signal()), "killed by " + signalName(ws.Signal())
	case ws.ExitStatus() != 0:
		return ws.ExitStatus(), fmt.Sprintf("exit code %d", ws.ExitStatus())
	}
	return 0, "ended well"
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return s.String()
}
