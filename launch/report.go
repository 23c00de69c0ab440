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
	Rank        int           `json:"rank"`                  // -1: it was no rank
	Replacement int           `json:"replacement,omitempty"` // which process in the place of that rank's first one; 0: that
	Node        int           `json:"node"`                  // its host
	Code        int           `json:"code"`                  // what a shell would see
	How         string        `json:"how"`                   // in words
	After       time.Duration `json:"after"`                 // from the start of its attempt
	Lines       []string      `json:"lines,omitempty"`       // the last that it printed
	Doing       string        `json:"doing,omitempty"`       // what it was doing when the first failed
}

// of reports whether this is the end of a rank of this host.
func (e *Exit) of(r *rank) bool { return e.Rank == r.number && e.Replacement == r.replacement }

// who names a process, for people.
func (e *Exit) who() string {
	if e.Replacement > 0 {
		return fmt.Sprintf("replacement %d of rank %d", e.Replacement, e.Rank)
	}
	return fmt.Sprintf("rank %d", e.Rank)
}

// A Loss is a process that an elastic job has lost, and what became of its
// place.
type Loss struct {
	Exit
	// By is which replacement has taken its place, and ByAfter when, from the start
	// of the attempt. Zero: none has.
	By      int
	ByAfter time.Duration
	// LetIn is what that became in the job, such as "rank 2 of 3"; "" if it was
	// not let in.
	LetIn string
}

// String says, for people, who was lost, how, and who has taken its place.
func (l *Loss) String() string {
	text := fmt.Sprintf("%s was lost after %v: %s", l.who(), l.After.Round(time.Millisecond), l.How)
	switch {
	case l.By == 0:
		return text + "; nobody has taken its place"
	case l.LetIn == "":
		return fmt.Sprintf("%s; replacement %d came after %v, and was not let in", text, l.By, l.ByAfter.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s; replacement %d came after %v, and was let in as %s", text, l.By, l.ByAfter.Round(time.Millisecond), l.LetIn)
}

// A Report is how a job has ended, as this host saw it.
type Report struct {
	// Code is what a command should exit with: 0 if all ranks ended well, or those
	// that an elastic job had at its end; that of the first rank that failed; or
	// 128 and the signal that ended the job.
	Code int
	// First is what failed first; nil if nothing did.
	First *Exit
	// Ranks are this host's ranks, at the last attempt, and Lost those that it
	// went on without.
	Ranks []Exit
	Lost  []Loss
	// Hosts are the hosts that an elastic job has lost, in the last attempt; the same on
	// all hosts that were there at its end.
	Hosts []*HostLoss
	// Attempts is how often the ranks were started.
	Attempts int
	// Found is what can be said of ranks of one host that were stopped: who is
	// behind, missing or of another mind.
	Found []string
	// Dumps are the files with what ranks were doing when it failed, as a pattern
	// for tutti inspect; "" if there are none.
	Dumps string
	// Incomplete are the log files of Config.LogDir that could not be written to
	// their end. They do not change Code.
	Incomplete []string
}

// String says, for people, whom an elastic job has lost, and if it failed, which
// rank failed first, how, its last lines, and what the others were doing; and which
// log files are incomplete. It is empty if all went well.
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

func (r *Report) failure(b *strings.Builder) {
	f := r.First
	switch {
	case f.Rank < 0:
		fmt.Fprintf(b, "tutti: %s\n", f.How)
	default:
		fmt.Fprintf(b, "tutti: %s failed first: %s after %v\n", f.who(), f.How, f.After.Round(time.Millisecond))
		for _, l := range f.Lines {
			fmt.Fprintf(b, "    %s\n", l)
		}
	}
	for i := range r.Ranks {
		e := &r.Ranks[i]
		if e.Rank == f.Rank && e.Replacement == f.Replacement {
			continue
		}
		fmt.Fprintf(b, "tutti: %s ", e.who())
		if e.Doing != "" {
			fmt.Fprintf(b, "%s; ", e.Doing)
		}
		fmt.Fprintf(b, "%s\n", e.How)
	}
	for _, f := range r.Found {
		fmt.Fprintf(b, "tutti: %s\n", f)
	}
	if r.Dumps != "" {
		fmt.Fprintf(b, "tutti: who kept whom waiting: tutti inspect %s\n", r.Dumps)
	}
	if r.Attempts > 1 {
		fmt.Fprintf(b, "tutti: that was attempt %d\n", r.Attempts)
	}
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
