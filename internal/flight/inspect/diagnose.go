package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/flight"
)

// A Finding is one problem of a Comm.
type Finding struct {
	Ranks []int  // ranks with the problem
	Seq   uint64 // number of the operation; zero: none
	Text  string // one sentence
}

// A Diagnosis is the findings about a Comm.
type Diagnosis struct {
	Findings []Finding // most important first
	Details  []string  // the error, and the position of each rank
}

// Diagnose finds ranks that are missing, that disagree, and that are behind.
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
		if r.Error != nil {
			d.Details = append(d.Details, "The first cause, as the ranks were told: "+r.Error.Text)
			break
		}
	}
	for _, r := range c.Ranks {
		d.Details = append(d.Details, fmt.Sprintf("rank %d (process %d on %s) %s", r.Rank, r.PID, r.Host, Where(r)))
	}
	return d
}

func (d *Diagnosis) add(f *Finding) {
	if f != nil {
		d.Findings = append(d.Findings, *f)
	}
}

// missing names the ranks without a dump.
func (c *Comm) missing() *Finding {
	absent, n := c.absent(mostAbsent)
	if n == 0 {
		return nil
	}
	f := &Finding{Ranks: absent, Text: fmt.Sprintf("%s %s missing: there is no dump of %s",
		capital(ranks(absent, n)), are(absent), them(absent))}
	lost := make(map[int]bool)
	for _, d := range c.Ranks {
		if d.Error != nil {
			for _, r := range d.Error.Lost {
				lost[r] = true
			}
		}
	}
	var gone []int
	for r := range lost {
		if r >= 0 && r < c.Size && c.of(r) == nil {
			gone = append(gone, r)
		}
	}
	if len(gone) > 0 {
		slices.Sort(gone)
		f.Text += fmt.Sprintf(", and the others have lost %s", engine.Ranks(gone))
	}
	f.Text += "."
	return f
}

// mostAbsent bounds how many ranks without a dump are named and drawn, because a
// dump can claim any number of ranks.
const mostAbsent = 16

// ranks formats a list of ranks of which only the first are in list.
func ranks(list []int, n int) string {
	if n == len(list) {
		return engine.Ranks(list)
	}
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
	return fmt.Sprintf("ranks %s and %d more", text, n-len(list))
}

// A calledOp is one rank's part of an operation.
type calledOp struct {
	rank int
	op   *flight.Op
}

// disagreeing compares the ranks' calls at the first number at which they differ.
func (c *Comm) disagreeing() *Finding {
	var all []calledOp
	for _, d := range c.Ranks {
		for i := range d.Ops {
			all = append(all, calledOp{d.Rank, &d.Ops[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b calledOp) int { return bySeq(*a.op, *b.op) })
	for len(all) > 0 {
		seq, n := all[0].op.Seq, 1
		for n < len(all) && all[n].op.Seq == seq {
			n++
		}
		var texts []string
		by := make(map[string][]int)
		for _, k := range all[:n] {
			text := Describe(k.op)
			if by[text] == nil {
				texts = append(texts, text)
			}
			by[text] = append(by[text], k.rank)
		}
		if len(texts) > 1 {
			return disagreement(seq, texts, by)
		}
		all = all[n:]
	}
	return nil
}

// disagreement returns the finding about operation n. texts are the different
// calls, and by has the ranks that made each of them.
func disagreement(n uint64, texts []string, by map[string][]int) *Finding {
	// Smaller groups of ranks come first, because they are more likely to be wrong.
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
	for _, d := range c.Ranks {
		if op := last(d); op != nil {
			most = max(most, op.Seq)
		}
	}
	var late, ahead []int
	for _, d := range c.Ranks {
		if op := last(d); op != nil && op.Seq == most {
			ahead = append(ahead, d.Rank)
		} else {
			late = append(late, d.Rank)
		}
	}
	if len(late) == 0 || len(ahead) == 0 {
		return nil
	}
	f := &Finding{Ranks: late, Seq: most}
	where := Where(c.of(late[0]))
	if len(late) > 1 {
		where = fmt.Sprintf("rank %d %s", late[0], where)
	}
	leader := c.of(ahead[0])
	f.Text = fmt.Sprintf("%s %s behind: %s; %s %s in %s.", capital(engine.Ranks(late)), are(late), it(late, where),
		engine.Ranks(ahead), s(ahead, "is", "are"), since(leader, last(leader)))
	return f
}

// pendingMessages are a rank's messages that are not delivered yet.
type pendingMessages map[route]messageVerbs

// A route is the peer and the tag of a message, from one side.
type route struct{ peer, tag int }

// messageVerbs counts the messages of one route by verb.
type messageVerbs struct {
	first string
	mixed bool // there are other verbs than the first
}

// openMessages returns a rank's messages that are not delivered, the failed ones
// included.
func openMessages(d *flight.Dump) pendingMessages {
	box := make(pendingMessages)
	for i := range d.Msgs {
		m := &d.Msgs[i]
		if m.Peer == nil || m.State == flight.StateDone {
			continue
		}
		at := route{*m.Peer, m.Tag}
		v, there := box[at]
		switch {
		case !there:
			v.first = m.Verb
		case v.first != m.Verb:
			v.mixed = true
		}
		box[at] = v
	}
	return box
}

// unanswered names messages whose other side was not posted.
func (c *Comm) unanswered() (list []Finding) {
	boxes := make(map[int]pendingMessages)
	for _, d := range c.Ranks {
		for i := range d.Msgs {
			m := &d.Msgs[i]
			if m.State != flight.StateRunning && (m.State != flight.StateFailed || d.Error == nil) || m.Peer == nil || *m.Peer == engine.AnyRank {
				continue
			}
			other := c.of(*m.Peer)
			if other == nil {
				continue
			}
			if boxes[other.Rank] == nil {
				boxes[other.Rank] = openMessages(other)
			}
			if v, there := boxes[other.Rank][route{d.Rank, m.Tag}]; there && (v.mixed || v.first != m.Verb) {
				continue
			}
			if _, there := boxes[other.Rank][route{engine.AnyRank, m.Tag}]; there && m.Verb == "Send" {
				continue
			}
			did := "sent it"
			if m.Verb == "Send" {
				did = "asked for it"
			}
			list = append(list, Finding{Ranks: []int{d.Rank, other.Rank}, Text: fmt.Sprintf("Rank %d waits in %s, and rank %d has not %s.",
				d.Rank, since(d, m), other.Rank, did)})
		}
	}
	return list
}

// fine returns the text for a Comm without findings.
func (c *Comm) fine() string {
	d := c.Ranks[0]
	op := last(d)
	switch {
	case op == nil:
		return fmt.Sprintf("Nobody is behind: no rank of %d has called anything.", c.Size)
	case op.State == flight.StateRunning:
		return fmt.Sprintf("Nobody is behind: all %d ranks are in %s.", c.Size, since(d, op))
	}
	return fmt.Sprintf("Nobody is behind: all %d ranks have come to %s.", c.Size, name(op))
}

// Where describes the position of a rank: "is in AllReduce#7 (for 2s)".
func Where(d *flight.Dump) string { return where(d, "is") }

// WhereWas is Where for a rank that has exited since its dump: "was in AllReduce#7
// (for 2s)".
func WhereWas(d *flight.Dump) string { return where(d, "was") }

// where is Where with the verb for a running operation.
func where(d *flight.Dump, is string) string {
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
		text = is + " in " + since(d, op)
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
		text += "; it has closed the Comm"
	}
	return text
}

// since describes an operation and how long it has lasted.
func since(d *flight.Dump, op *flight.Op) string {
	if op.Start == 0 || op.State == flight.StateDone {
		return name(op)
	}
	end := d.At
	if op.End > 0 {
		end = op.End
	}
	return fmt.Sprintf("%s (for %v)", name(op), round(span(op.Start, end)))
}

func age(d *flight.Dump, at int64) time.Duration { return round(span(at, d.At)) }

// span returns the time between two moments, at least zero: a record that is read
// during a write may have them in the wrong order.
func span(from, to int64) time.Duration { return time.Duration(max(to-from, 0)) }

// round rounds to about three digits.
func round(t time.Duration) time.Duration {
	for unit := 1000 * time.Second; unit > time.Nanosecond; unit /= 10 {
		if t >= 100*unit {
			return t.Round(unit)
		}
	}
	return t
}

// name returns an operation's name as error texts use it.
func name(op *flight.Op) string {
	if op.Peer != nil {
		dir := "from"
		if op.Verb == "Send" {
			dir = "to"
		}
		if *op.Peer == engine.AnyRank {
			return fmt.Sprintf("%s %s any rank, tag %d", op.Verb, dir, op.Tag)
		}
		return fmt.Sprintf("%s %s rank %d, tag %d", op.Verb, dir, *op.Peer, op.Tag)
	}
	text := fmt.Sprintf("%s#%d", op.Verb, op.Seq)
	if op.Name != "" {
		text += fmt.Sprintf(" %q", op.Name)
	}
	return text
}

// Describe describes everything about an operation that must be the same on all
// ranks.
func Describe(op *flight.Op) string {
	var args []string
	switch {
	case op.Verb == "Batch":
		args = append(args, fmt.Sprintf("%d operations, fingerprint %08x", op.Count, op.Print))
	case op.Type == "":
	case strings.HasSuffix(op.Verb, "V"): // counts differ per rank
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
