package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/flight"
)

// A Finding is one thing that is wrong with a communicator.
type Finding struct {
	Ranks []int  // whom it is about
	Seq   uint64 // the operation it is about; zero: none
	Text  string // one sentence
}

// A Diagnosis is what can be said of a communicator.
type Diagnosis struct {
	Findings []Finding // what matters most first
	Details  []string  // the error, and where each rank is
}

// Diagnose says who is missing, who disagrees, and who is behind.
func (c *Comm) Diagnose() *Diagnosis {
	d := new(Diagnosis)
	d.add(c.missing())
	d.add(c.disagreeing())
	d.add(c.behind())
	d.Findings = append(d.Findings, c.unanswered()...)
	if len(d.Findings) == 0 {
		d.Findings = []Finding{{Text: c.fine()}}
	}
	for _, r := range c.Ranks {
		if r != nil && r.Error != nil {
			d.Details = append(d.Details, "The first cause, as the ranks were told: "+r.Error.Text)
			break
		}
	}
	for rank, r := range c.Ranks {
		if r != nil {
			d.Details = append(d.Details, fmt.Sprintf("rank %d (process %d on %s) %s", rank, r.PID, r.Host, Where(r)))
		}
	}
	return d
}

func (d *Diagnosis) add(f *Finding) {
	if f != nil {
		d.Findings = append(d.Findings, *f)
	}
}

// present are the ranks that have left a dump.
func (c *Comm) present() (list []int) {
	for r, d := range c.Ranks {
		if d != nil {
			list = append(list, r)
		}
	}
	return list
}

// missing names the ranks without a dump.
func (c *Comm) missing() *Finding {
	var absent []int
	lost := make(map[int]bool)
	for r, d := range c.Ranks {
		switch {
		case d == nil:
			absent = append(absent, r)
		case d.Error != nil:
			for _, l := range d.Error.Lost {
				lost[l] = true
			}
		}
	}
	if len(absent) == 0 {
		return nil
	}
	f := &Finding{Ranks: absent, Text: fmt.Sprintf("%s %s missing: there is no dump of %s",
		capital(engine.Ranks(absent)), are(absent), them(absent))}
	gone := slices.DeleteFunc(slices.Clone(absent), func(r int) bool { return !lost[r] })
	if len(gone) > 0 {
		f.Text += fmt.Sprintf(", and the others have lost %s", engine.Ranks(gone))
	}
	f.Text += "."
	return f
}

// disagreeing compares what ranks called at the first number at which they
// differ.
func (c *Comm) disagreeing() *Finding {
	present := c.present()
	seen := make(map[uint64]bool)
	var numbers []uint64
	for _, r := range present {
		for i := range c.Ranks[r].Ops {
			if n := c.Ranks[r].Ops[i].Seq; !seen[n] {
				seen[n] = true
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		var texts []string
		by := make(map[string][]int)
		for _, r := range present {
			op := find(c.Ranks[r], n)
			if op == nil {
				continue
			}
			text := Describe(op)
			if by[text] == nil {
				texts = append(texts, text)
			}
			by[text] = append(by[text], r)
		}
		if len(texts) > 1 {
			return disagreement(n, texts, by)
		}
	}
	return nil
}

func disagreement(n uint64, texts []string, by map[string][]int) *Finding {
	// The few are named first: they are more likely to be wrong.
	slices.SortStableFunc(texts, func(a, b string) int { return len(by[a]) - len(by[b]) })
	f := &Finding{Seq: n}
	var parts []string
	for i, t := range texts {
		parts = append(parts, fmt.Sprintf("%s called %s", engine.Ranks(by[t]), t))
		if i < len(texts)-1 || len(by[t]) == len(by[texts[0]]) {
			f.Ranks = append(f.Ranks, by[t]...)
		}
	}
	slices.Sort(f.Ranks)
	f.Text = fmt.Sprintf("%s %s in operation #%d: %s.", capital(engine.Ranks(f.Ranks)), s(f.Ranks, "disagrees", "disagree"), n, strings.Join(parts, ", "))
	return f
}

// behind names the ranks that have begun fewer operations than the others.
func (c *Comm) behind() *Finding {
	var most uint64
	for _, r := range c.present() {
		if op := last(c.Ranks[r]); op != nil {
			most = max(most, op.Seq)
		}
	}
	var late, ahead []int
	for _, r := range c.present() {
		if op := last(c.Ranks[r]); op != nil && op.Seq == most {
			ahead = append(ahead, r)
		} else {
			late = append(late, r)
		}
	}
	if len(late) == 0 || len(ahead) == 0 {
		return nil
	}
	f := &Finding{Ranks: late, Seq: most}
	first := c.Ranks[late[0]]
	where := Where(first)
	if len(late) > 1 {
		where = fmt.Sprintf("rank %d %s", late[0], where)
	}
	leader := c.Ranks[ahead[0]]
	f.Text = fmt.Sprintf("%s %s behind: %s; %s %s in %s.", capital(engine.Ranks(late)), are(late), it(late, where),
		engine.Ranks(ahead), s(ahead, "is", "are"), since(leader, last(leader)))
	return f
}

// unanswered names messages that nobody has taken or sent.
func (c *Comm) unanswered() (list []Finding) {
	for _, r := range c.present() {
		for i := range c.Ranks[r].Msgs {
			m := &c.Ranks[r].Msgs[i]
			if m.State != flight.StateRunning && (m.State != flight.StateFailed || c.Ranks[r].Error == nil) || m.Peer == nil {
				continue
			}
			peer := *m.Peer
			if peer >= len(c.Ranks) || c.Ranks[peer] == nil || answered(c.Ranks[peer], r, m) {
				continue
			}
			did := "sent it"
			if m.Verb == "Send" {
				did = "asked for it"
			}
			list = append(list, Finding{Ranks: []int{r, peer}, Text: fmt.Sprintf("Rank %d waits in %s, and rank %d has not %s.",
				r, since(c.Ranks[r], m), peer, did)})
		}
	}
	return list
}

// answered reports whether a rank has an open message that fits one of another.
func answered(d *flight.Dump, from int, m *flight.Op) bool {
	return slices.ContainsFunc(d.Msgs, func(o flight.Op) bool {
		return o.Verb != m.Verb && o.Peer != nil && *o.Peer == from && o.Tag == m.Tag && o.State != flight.StateDone
	})
}

// fine is what there is to say when nobody differs.
func (c *Comm) fine() string {
	d := c.Ranks[c.present()[0]]
	op := last(d)
	switch {
	case op == nil:
		return fmt.Sprintf("Nobody is behind: no rank of %d has called anything.", len(c.Ranks))
	case op.State == flight.StateRunning:
		return fmt.Sprintf("Nobody is behind: all %d ranks are in %s.", len(c.Ranks), since(d, op))
	}
	return fmt.Sprintf("Nobody is behind: all %d ranks have come to %s.", len(c.Ranks), name(op))
}

// Where says how far a rank is: "is in AllReduce#7 (for 2s)".
func Where(d *flight.Dump) string {
	var open *flight.Op
	for i := range d.Msgs {
		if d.Msgs[i].State == flight.StateRunning {
			open = &d.Msgs[i]
		}
	}
	op := last(d)
	var text string
	switch {
	case op == nil:
		text = "has called no collective operation"
	case op.State == flight.StateRunning:
		text = "is in " + since(d, op)
	case op.State == flight.StateFailed:
		text = "was in " + name(op) + " when it failed"
	default:
		text = "last did " + name(op)
		if op.End > 0 {
			text += fmt.Sprintf(", %v before its dump", age(d, op.End))
		}
	}
	if open != nil && (op == nil || op.State != flight.StateRunning) {
		text += ", and waits in " + since(d, open)
	}
	if d.Closed {
		text += "; it has closed the communicator"
	}
	return text
}

// since is an operation and how long it has lasted.
func since(d *flight.Dump, op *flight.Op) string {
	if op.Start == 0 || op.State == flight.StateDone {
		return name(op)
	}
	end := d.At
	if op.End > 0 {
		end = op.End
	}
	return fmt.Sprintf("%s (for %v)", name(op), round(time.Duration(end-op.Start)))
}

func age(d *flight.Dump, at int64) time.Duration { return round(time.Duration(d.At - at)) }

// round leaves three digits or so.
func round(t time.Duration) time.Duration {
	for unit := 1000 * time.Second; unit > time.Nanosecond; unit /= 10 {
		if t >= 100*unit {
			return t.Round(unit)
		}
	}
	return t
}

// name is an operation as error texts call it.
func name(op *flight.Op) string {
	if op.Peer != nil {
		dir := "from"
		if op.Verb == "Send" {
			dir = "to"
		}
		return fmt.Sprintf("%s %s rank %d, tag %d", op.Verb, dir, *op.Peer, op.Tag)
	}
	text := fmt.Sprintf("%s#%d", op.Verb, op.Seq)
	if op.Name != "" {
		text += fmt.Sprintf(" %q", op.Name)
	}
	return text
}

// Describe is all of an operation that must be the same on all ranks.
func Describe(op *flight.Op) string {
	var args []string
	switch {
	case op.Verb == "Batch":
		args = append(args, fmt.Sprintf("%d operations, fingerprint %08x", op.Count, op.Print))
	case op.Type == "":
	case strings.HasSuffix(op.Verb, "V"): // whose counts differ
		args = append(args, op.Type)
	default:
		args = append(args, fmt.Sprintf("%d x %s", op.Count, op.Type))
	}
	if op.Red != "" {
		args = append(args, op.Red)
	}
	if op.Root != nil {
		args = append(args, fmt.Sprintf("root %d", *op.Root))
	}
	if op.Name != "" {
		args = append(args, fmt.Sprintf("name %q", op.Name))
	}
	if len(args) == 0 {
		return op.Verb
	}
	return op.Verb + "(" + strings.Join(args, ", ") + ")"
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func s(list []int, one, many string) string {
	if len(list) == 1 {
		return one
	}
	return many
}

func are(list []int) string  { return s(list, "is", "are") }
func them(list []int) string { return s(list, "it", "them") }

func it(list []int, text string) string {
	if len(list) == 1 {
		return "it " + text
	}
	return text
}
