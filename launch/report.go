package launch

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An Exit describes how a rank, or a whole host, ended.
type Exit struct {
	Rank        int           `json:"rank"`                  // -1: not a rank
	Replacement int           `json:"replacement,omitempty"` // 0: the rank's first process; n: its n-th replacement
	Node        int           `json:"node"`                  // the host's number
	Code        int           `json:"code"`                  // exit code, as a shell reports it
	How         string        `json:"how"`                   // for people
	After       time.Duration `json:"after"`                 // from the start of its attempt
	Lines       []string      `json:"lines,omitempty"`       // last lines of its output
	Doing       string        `json:"doing,omitempty"`       // its activity when the first failure occurred
}

// matches reports whether e is the exit of r.
func (e *Exit) matches(r *rank) bool { return e.Rank == r.number && e.Replacement == r.replacement }

// label names the process for people.
func (e *Exit) label() string {
	if e.Replacement > 0 {
		return fmt.Sprintf("replacement %d of rank %d", e.Replacement, e.Rank)
	}
	return fmt.Sprintf("rank %d", e.Rank)
}

// A Loss is a process that an elastic job lost, and its replacement.
type Loss struct {
	Exit
	// By is the number of the replacement, and ByAfter its start time, counted from the
	// start of the attempt. Both are zero if there is none.
	By      int
	ByAfter time.Duration
	// LetIn is the rank that the replacement got, such as "rank 2 of 3"; "" if it got
	// none.
	LetIn string
}

// String says, for people, which process was lost, why, and what replaced it.
func (l *Loss) String() string {
	text := fmt.Sprintf("%s was lost after %v: %s", l.label(), l.After.Round(time.Millisecond), l.How)
	switch {
	case l.By == 0:
		return text + "; it was not replaced"
	case l.LetIn == "":
		return fmt.Sprintf("%s; replacement %d started after %v and was not admitted", text, l.By, l.ByAfter.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s; replacement %d started after %v and was admitted as %s", text, l.By, l.ByAfter.Round(time.Millisecond), l.LetIn)
}

// A Report describes how a job ended, as seen by this host.
type Report struct {
	// Code is the exit code for the command: 0 if all ranks succeeded, or all that
	// remained in an elastic job; the code of the first rank that failed; or 128 plus
	// the number of the signal that ended the job.
	Code int
	// First is the first failure; nil if there was none.
	First *Exit
	// Ranks are this host's ranks in the last attempt, and Lost the ranks that an
	// elastic job continued without.
	Ranks []Exit
	Lost  []Loss
	// Hosts are the hosts that an elastic job lost in the last attempt. Every host that
	// remains at the end of the job reports the same list.
	Hosts []*HostLoss
	// Stopped counts the ranks of this host that were stopped, by SIGSTOP or a debugger,
	// when the first failure occurred.
	Stopped int
	// Attempts counts the starts of the ranks.
	Attempts int
	// Found are diagnoses of a job on one host that was stopped: which ranks are
	// behind, missing or in another operation.
	Found []string
	// Dumps is a pattern for `tutti inspect` that matches the ranks' flight dumps; ""
	// if there are none.
	Dumps string
	// Incomplete are the log files in Config.LogDir that could not be written
	// completely. They do not change Code.
	Incomplete []string
}

// String says, for people, which ranks an elastic job lost, which rank failed first and
// why, its last lines, the activity of the other ranks, and which log files are
// incomplete. It is empty if nothing failed.
func (r *Report) String() string {
	var b strings.Builder
	for i := range r.Lost {
		fmt.Fprintf(&b, "tutti: %v\n", &r.Lost[i])
	}
	for _, l := range r.Hosts {
		fmt.Fprintf(&b, "tutti: %v\n", l)
	}
	if r.First != nil {
		r.failure(&b)
	}
	if len(r.Incomplete) > 0 {
		fmt.Fprintf(&b, "tutti: incomplete log files: %s\n", strings.Join(r.Incomplete, ", "))
	}
	return b.String()
}

// failure writes the first failure, the other ranks' activity and ends, and where to look further.
func (r *Report) failure(b *strings.Builder) {
	f := r.First
	switch {
	case f.Rank < 0:
		fmt.Fprintf(b, "tutti: %s\n", f.How)
	default:
		fmt.Fprintf(b, "tutti: %s failed first: %s after %v\n", f.label(), f.How, f.After.Round(time.Millisecond))
		for _, l := range f.Lines {
			fmt.Fprintf(b, "    %s\n", l)
		}
	}
	for i := range r.Ranks {
		e := &r.Ranks[i]
		if e.Rank == f.Rank && e.Replacement == f.Replacement {
			continue
		}
		fmt.Fprintf(b, "tutti: %s ", e.label())
		if e.Doing != "" {
			fmt.Fprintf(b, "%s; ", e.Doing)
		}
		fmt.Fprintf(b, "%s\n", e.How)
	}
	if r.Stopped > 0 {
		fmt.Fprintf(b, "tutti: stopped ranks: %d of %d\n", r.Stopped, len(r.Ranks))
	}
	for _, f := range r.Found {
		fmt.Fprintf(b, "tutti: %s\n", f)
	}
	if r.Dumps != "" {
		fmt.Fprintf(b, "tutti: to see which rank the others waited for: tutti inspect %s\n", r.Dumps)
	}
	if r.Attempts > 1 {
		fmt.Fprintf(b, "tutti: that was attempt %d\n", r.Attempts)
	}
}

// decodeStatus returns the exit code of a process and a description for people.
func decodeStatus(ws syscall.WaitStatus) (code int, how string) {
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
