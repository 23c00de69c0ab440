package bench

import (
	"fmt"
	"slices"
	"strings"
)

// header returns the text before the table. The caller holds mu. TestBenchTable in cmd/tutti limits the table to
// 80 columns. With "p50 diff" it has 79, so a further column needs narrower ones.
func (s *Printer) header() string {
	st := s.start
	var b strings.Builder
	fmt.Fprintf(&b, "tutti %s on %s: %s\n", st.Machine.Version, st.Machine.Host, st.Machine.CPU)
	fmt.Fprintf(&b, "engine %s, %s", st.Engine, counted(st.Ranks, "rank"))
	if hosts := st.hosts(); hosts > 1 {
		fmt.Fprintf(&b, " on %d hosts", hosts)
		if st.Engine == Hier && s.o.Engine == Hier && len(unique(st.Names)) == 1 {
			b.WriteString(" (two names of this one)")
		}
	}
	fmt.Fprintf(&b, ", %s", st.hardware())
	if len(s.o.DTypes) == 1 {
		fmt.Fprintf(&b, ", %s", s.o.DTypes[0])
	}
	if len(s.o.Reduces) == 1 {
		fmt.Fprintf(&b, " %s", s.o.Reduces[0])
	}
	if st.InPlace {
		b.WriteString(", in place")
	}
	if st.Alloc {
		b.WriteString(", shared memory of Alloc")
	}
	if st.Batch > 1 {
		fmt.Fprintf(&b, ", batches of %d", st.Batch)
	}
	if st.Ahead > 1 {
		fmt.Fprintf(&b, ", up to %d ahead", st.Ahead)
	}
	b.WriteString("\n\n")
	fmt.Fprintf(&b, "%-13s %7s %6s %7s %7s %7s %5s %5s %5s", "operation", "size", "iters", "p50 us", "p99 us", "min us", "algbw", "busbw", "wrong")
	if s.saved != nil {
		fmt.Fprintf(&b, " %8s", "p50 diff")
	}
	b.WriteString("\n")
	return b.String()
}

// hardware returns what the ranks run on: cores, or GPUs, of which rank 0's is
// named.
func (st *Start) hardware() string {
	switch {
	case st.device():
		return fmt.Sprintf("%s (%s)", counted(len(unique(st.Names)), "GPU"), strings.TrimPrefix(st.Names[0], st.Machine.Host+" "))
	case st.Bound:
		return counted(st.Cores, "core") + " (bound)"
	}
	return counted(st.Cores, "core")
}

func (st *Start) device() bool { return st.Engine == NCCL || st.Engine == Staged }

func (st *Start) hosts() int { return len(unique(st.Hosts)) }

func unique[T int | string](list []T) []T {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// row returns a line of the table, after the name of its group if a new one begins. The caller
// holds mu.
func (s *Printer) row(p *Point) string {
	r := &p.Result
	var b strings.Builder
	if len(s.o.DTypes) > 1 || len(s.o.Reduces) > 1 {
		if g := r.DType + " " + r.Reduce; g != s.group {
			fmt.Fprintf(&b, "-- %s\n", strings.ReplaceAll(g, " "+none, ""))
			s.group = g
		}
	}
	fmt.Fprintf(&b, "%-13s %7s %6d %7s %7s %7s %5s %5s %5d", r.Op, byteText(r.Bytes), r.Iters,
		shortNumber(r.P50), shortNumber(r.P99), shortNumber(r.Min), shortNumber(r.AlgBW), shortNumber(r.BusBW), r.Wrong)
	if s.saved != nil {
		fmt.Fprintf(&b, " %8s", s.saved.Compare(p))
	}
	b.WriteString("\n")
	return b.String()
}

// footer returns the text after the table: notes, and one line with the verdict. The caller holds
// mu.
func (s *Printer) footer(paged bool) string {
	var b strings.Builder
	b.WriteString("\n")
	if len(s.links) > 0 && len(s.done.Outliers) == 0 {
		fmt.Fprintf(&b, "pairs: %d links measured, none stands out\n", len(s.links))
	}
	if s.o.note != "" {
		fmt.Fprintf(&b, "note: %s\n", s.o.note)
	}
	if n := s.start.ranksOnHost(); n > s.start.Cores {
		fmt.Fprintf(&b, "note: %d ranks share %s; times are those of a crowded machine\n", n, counted(s.start.Cores, "core"))
	}
	if s.saved != nil {
		b.WriteString(s.comparison() + "\n")
	}
	if s.o.HTML != "" && paged {
		fmt.Fprintf(&b, "report: %s\n", s.o.HTML)
	}
	b.WriteString(s.verdict() + "\n")
	return b.String()
}

// comparison is one line about the saved run.
func (s *Printer) comparison() string {
	return fmt.Sprintf("against %s: %s", s.o.Against, s.saved.summary(s.points))
}

// ranksOnHost returns how many ranks share the cores of rank 0's host. Ranks with
// GPUs do not count.
func (st *Start) ranksOnHost() (n int) {
	if st.device() {
		return 0
	}
	for i := range st.Names {
		if st.Names[i] == st.Names[0] {
			n++
		}
	}
	return n
}

// verdict is one line: the first wrong element, or that every result is right. The caller holds mu.
func (s *Printer) verdict() string {
	if n := s.wrong(); n > 0 {
		var first Wrong
		for i := range s.points {
			if w := s.points[i].Wrongs; len(w) > 0 {
				first = w[0]
				break
			}
		}
		return fmt.Sprintf("WRONG: %s; first %s", counted(n, "element"), first)
	}
	text := fmt.Sprintf("ok: %s, every result right, in %s s", counted(len(s.points), "point"), shortNumber(s.done.Seconds))
	if s.done.Passes > 1 {
		text += fmt.Sprintf(" and %d passes", s.done.Passes)
	}
	if best := s.best(); best != nil {
		text += fmt.Sprintf("; %s up to %s GB/s (bus)", best.Op, shortNumber(best.BusBW))
	}
	if n := len(s.done.Outliers); n > 0 {
		text += fmt.Sprintf("; slow ranks or links: %d", n)
	}
	return text
}

// best returns the fastest point of the first operation that has a bandwidth.
func (s *Printer) best() (best *Result) {
	for i := range s.points {
		r := &s.points[i].Result
		if r.BusBW > 0 && (best == nil || r.Op == best.Op && r.BusBW > best.BusBW) {
			best = r
		}
	}
	return best
}
