package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-go/tutti/internal/kernel"
)

// Sentence returns the text of an error: the operation, its number, the rank, and what happened. A negative
// rank is that of a process that has none.
func Sentence(op string, seq uint64, rank int, what string) string {
	switch {
	case op == "":
		return what
	case rank < 0:
		return fmt.Sprintf("%s: %s", op, what)
	case seq == 0:
		return fmt.Sprintf("%s on rank %d: %s", op, rank, what)
	}
	return fmt.Sprintf("%s #%d on rank %d: %s", op, seq, rank, what)
}

// mostCauses is the maximum number of failures in a chain of causes that a reason describes.
const mostCauses = 4

// Reason returns what happened and what to do.
func (f *Failure) Reason() string { return f.reason(f.advice(), f.shrinkAdvice()) }

// ReasonOfClose is Reason for a rank that has closed the group, and cannot call Shrink any more.
func (f *Failure) ReasonOfClose() string { return f.reason(f.advice()) }

// reason returns what happened, with advice.
func (f *Failure) reason(advice ...string) string {
	text := f.what(mostCauses)
	for _, a := range advice {
		if a != "" {
			text += "; " + a
		}
	}
	return text
}

// what returns the text of the event, with at most the given number of causes. A failure without an event has
// its own text.
func (f *Failure) what(causes int) string {
	side := func(i int) Side {
		if i < len(f.Sides) {
			return f.Sides[i]
		}
		return Side{}
	}
	a, b := side(0), side(1)
	switch f.Event {
	case CallsDiffer:
		if len(f.Sides) < 2 {
			return "the calls of the ranks differ in more than can be shown"
		}
		return fmt.Sprintf("rank %d called %s, rank %d called %s", a.Rank, a.Call, b.Rank, b.Call)
	case StepsDiffer:
		return fmt.Sprintf("rank %d is in call %d, %s, and rank %d in call %d, %s", a.Rank, a.Step, a.Call, b.Rank, b.Step, b.Call)
	case AlgorithmsDiffer:
		return fmt.Sprintf("rank %d carries out %s by algorithm %s, rank %d by algorithm %s", a.Rank, a.Call, a.Algorithm, b.Rank, b.Algorithm)
	case CountsDiffer:
		return fmt.Sprintf("rank %d expects %d elements from rank %d, which has %d for it", a.Rank, a.N, b.Rank, b.N)
	case SegmentsDiffer:
		return fmt.Sprintf("rank %d receives segments of %d bytes, rank %d sends segments of %d", a.Rank, a.N, b.Rank, b.N)
	case MessagesDiffer:
		if f.typesDiffer() && !f.memoriesDiffer() {
			return fmt.Sprintf("rank %d receives %s with tag %d, rank %d sends %s", a.Rank, a.Call.Fingerprint.Type, f.Tag, b.Rank, b.Call.Fingerprint.Type)
		}
		return fmt.Sprintf("rank %d receives %s with tag %d, rank %d sends %s", a.Rank, a.Call.Fingerprint.elements(), f.Tag, b.Rank, b.Call.Fingerprint.elements())
	case MemoryFreed:
		return fmt.Sprintf("rank %d has freed memory of Alloc that rank %d still uses", a.Rank, b.Rank)
	case OutOfBounds:
		return fmt.Sprintf("rank %d has requested %d bytes that are not in a buffer of rank %d, which has %d", a.Rank, a.N, b.Rank, b.N)
	case RanksLost:
		return f.lossText()
	case LostElsewhere:
		return fmt.Sprintf("%s lost, as rank %d found on another Comm", areRanks(f.Lost), f.Rank)
	case LeftElsewhere:
		return fmt.Sprintf("rank %d has left after the failure of another Comm", f.Rank) + f.because(causes)
	case LostWhileForming:
		return fmt.Sprintf("%s lost, as rank %d found while the Comm of %s was being made", areRanks(f.Lost), f.Rank, Ranks(f.Ranks)) + f.because(causes)
	case ParentFailed:
		return "the Comm that this one was being made of has failed" + f.because(causes)
	case FormingFailed:
		return fmt.Sprintf("the Comm of %s could not be made on rank %d", Ranks(f.Ranks), f.Rank) + f.because(causes)
	case SharingFailed:
		return fmt.Sprintf("memory could not be shared on rank %d", f.Rank) + f.because(causes)
	case LimitPassed:
		return fmt.Sprintf("not done after %v", f.Limit) + f.waiting()
	case DeadlinePassed:
		return "the context's deadline has passed" + f.waiting()
	case Cancelled:
		text := "the context was cancelled"
		if f.Text != "" {
			text += " (" + f.Text + ")"
		}
		return text + f.waiting()
	case WaitCycle:
		return f.cycleText()
	case TransferDamaged:
		from := ""
		if f.Text != "" {
			from = ", from " + f.Text + ","
		}
		return fmt.Sprintf("what rank %d sent to rank %d%s has another checksum than it was sent with", a.Rank, b.Rank, from)
	case ResultDiffers:
		return fmt.Sprintf("the result of %s is not that of the others", Ranks(f.Ranks))
	case ResultsDiffer:
		return fmt.Sprintf("%s have different results, and no result is that of most ranks", Ranks(f.Ranks))
	case TransportFailed:
		return "the transport has failed" + f.because(causes)
	case DeviceFailed:
		return fmt.Sprintf("%s has failed on rank %d", f.Device, f.Rank) + f.because(causes)
	case DeviceUnfit:
		return fmt.Sprintf("%s cannot be used for a new Comm on rank %d", f.Device, f.Rank) + f.because(causes)
	case AbortCalled:
		return fmt.Sprintf("Abort was called on rank %d", f.Rank) + f.because(causes)
	case OpCalled:
		return fmt.Sprintf("%s was called on rank %d", f.Op, f.Rank)
	}
	if f.Text == "" {
		return "the reason is not known"
	}
	return f.Text
}

// advice returns what the user can do about the failure; "" if there is nothing special.
func (f *Failure) advice() string {
	switch f.Event {
	case CallsDiffer:
		return sameCalls + f.sameArgument()
	case StepsDiffer:
		return sameCalls
	case AlgorithmsDiffer, SegmentsDiffer:
		return "all ranks must be made with the same options"
	case CountsDiffer:
		return "the counts of an uneven operation must agree in pairs"
	case MessagesDiffer:
		switch {
		case f.memoriesDiffer():
			return "both sides pass host memory, or both device memory"
		case f.hasValue():
			return "receive with value.Recv what value.Send sends, and nothing else"
		case f.typesDiffer():
			return "use the same element type on both sides"
		}
		return "a Batch and SendRecv need the same length on both sides; Recv also accepts a shorter message"
	case MemoryFreed:
		return "it may be freed when no rank uses it any more"
	case RanksLost:
		switch {
		case f.Loss != Closed:
		case f.Op == "Send" || f.Op == "Recv":
			return "all messages must be received before Close"
		default:
			return "all ranks must make the same calls before Close"
		}
	case WaitCycle:
		if f.tagsDiffer() {
			return "use the same tag on both sides"
		}
		return "where ranks exchange messages, use SendRecv or a Batch"
	case TransferDamaged:
		return "look at the network between them and at the memory of their hosts"
	case ResultDiffers, ResultsDiffer:
		if len(f.Ranks) == 1 {
			return "look at the memory and the processors of its host"
		}
		return "look at the memory and the processors of their hosts"
	}
	return ""
}

const sameCalls = "every rank must make the same calls in the same order"

// sameArgument names the only argument in which two calls of one method differ; "" if there is no such argument.
func (f *Failure) sameArgument() string {
	if len(f.Sides) != 2 {
		return ""
	}
	a, b := f.Sides[0].Call.Fingerprint, f.Sides[1].Call.Fingerprint
	same := a
	same.Count = b.Count
	if same == b && a.Verb == Group {
		return ", and a Batch of as many operations"
	}
	if same == b {
		return ", with the same number of elements"
	}
	same = a
	if same.Type = b.Type; same == b {
		return ", with the same element type"
	}
	same = a
	if same.ReduceOp = b.ReduceOp; same == b {
		return ", with the same operator"
	}
	same = a
	if same.Root = b.Root; same == b {
		return ", with the same root"
	}
	return ""
}

// tagsDiffer reports whether a rank in a cycle of messages sends to a rank that receives from it with another tag.
func (f *Failure) tagsDiffer() bool {
	for _, s := range f.Waits {
		for _, r := range f.Waits {
			if s.Send && !r.Send && s.Rank == r.Peer && s.Peer == r.Rank && s.Tag != r.Tag {
				return true
			}
		}
	}
	return false
}

// shrinkAdvice returns how Shrink helps after the failure; "" if the text says nothing of it.
func (f *Failure) shrinkAdvice() string {
	switch f.Event {
	case RanksLost, LostElsewhere, LostWhileForming:
		switch {
		case len(f.Lost) == 0 || f.Left && f.Loss != Closed:
			return ""
		case len(f.Lost) == 1:
			return "call Shrink to continue without it"
		}
		return "call Shrink to continue without them"
	case OpCalled:
		return "call " + f.Op + ", too"
	}
	return ""
}

// because returns the part of the text that describes the cause, or Text if there is none.
func (f *Failure) because(causes int) string {
	switch c := f.Cause; {
	case c != nil && causes <= 1:
		return ": ..."
	case c != nil:
		text := c.what(causes - 1)
		if c.Op != "" || !errors.Is(c.Kind, f.Kind) {
			text = Sentence(c.Op, c.Seq, c.Rank, c.Kind.Error()+": "+text)
		}
		return ": " + text
	case f.Text != "":
		return ": " + f.Text
	}
	return ""
}

// typesDiffer reports whether two sides of a message have different element types.
func (f *Failure) typesDiffer() bool {
	return len(f.Sides) == 2 && f.Sides[0].Call.Fingerprint.Type != f.Sides[1].Call.Fingerprint.Type
}

// hasValue reports whether one of two sides of a message is a value of package value.
func (f *Failure) hasValue() bool {
	return slices.ContainsFunc(f.Sides, func(s Side) bool { return s.Call.Fingerprint.Type == kernel.Value })
}

// memoriesDiffer reports whether one of two sides of a message is in device memory, and the other in
// host memory.
func (f *Failure) memoriesDiffer() bool {
	note := func(s Side) bool { return s.Call.Fingerprint.Type == kernel.Note }
	return len(f.Sides) == 2 && note(f.Sides[0]) != note(f.Sides[1])
}

// cycleText returns which ranks wait for each other, and how.
func (f *Failure) cycleText() string {
	var list []string
	for _, w := range f.Waits {
		does := "to receive from"
		if w.Send {
			does = "to send to"
		}
		text := fmt.Sprintf("rank %d waits %s rank %d", w.Rank, does, w.Peer)
		if w.Tag >= 0 { // other tags are not the user's
			text += fmt.Sprintf(" with tag %d", w.Tag)
		}
		list = append(list, text)
	}
	text := strings.Join(list, ", ")
	if more := f.Total - len(f.Waits); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return fmt.Sprintf("for %v ranks have waited for each other: %s", f.Limit, text)
}

// lossText returns which ranks were lost, and how.
func (f *Failure) lossText() string {
	has := "has"
	if len(f.Lost) > 1 {
		has = "have"
	}
	switch f.Loss {
	case Closed:
		return fmt.Sprintf("%s %s closed the Comm", Ranks(f.Lost), has)
	case Exited:
		return fmt.Sprintf("%s exited without Close", Ranks(f.Lost))
	case JoinFailed:
		return fmt.Sprintf("%s %s left: Join failed", Ranks(f.Lost), has) + f.because(1)
	case "":
		return areRanks(f.Lost) + " lost" + f.because(1)
	}
	how := f.Loss.String()
	if len(f.Lost) > 1 {
		how = strings.Replace(how, "its ", "their ", 1)
	}
	return areRanks(f.Lost) + " lost: " + how + f.because(1)
}

// String returns the text of the loss of one rank.
func (l Loss) String() string {
	switch l {
	case Closed:
		return "it has closed the Comm"
	case Exited:
		return "it exited without Close"
	case HostSilent:
		return "its host does not answer"
	case Disconnected:
		return "its connection has ended without Close"
	case JoinFailed:
		return "Join failed"
	}
	return string(l)
}

// waiting returns the part of the text that describes the Wait.
func (f *Failure) waiting() string {
	w := &f.Wait
	text := w.phaseText(f)
	if len(w.Unheard) > 0 {
		text += fmt.Sprintf("; in this call nothing was heard of %s", Ranks(w.Unheard))
		if w.Phase != Arriving {
			text += w.lastCalls()
		}
	}
	if len(w.Behind) > 0 {
		text += "; not arrived at one after it: " + Ranks(w.Behind)
	}
	switch w.Relay {
	case HostsWait:
		text += fmt.Sprintf("; a rank that leads a host may be waiting for others there (%s)", Ranks(w.Beyond))
	case LeaderWaits:
		text += fmt.Sprintf("; rank %d may be waiting for other hosts (%s)", w.Leader, Ranks(w.Beyond))
	case HostsNotAsked:
		text += fmt.Sprintf("; other hosts (%s) have not been asked yet", Ranks(w.Beyond))
	}
	return text
}

// phaseText returns the part of the text that describes the phase.
func (w *Wait) phaseText(f *Failure) string {
	switch w.Phase {
	case NotBegun:
		return ": before the operation began"
	case Queued:
		return " while the operation waited for the operations before it"
	case AboutToWait:
		return ": it was about to wait for " + Ranks(w.Ranks)
	case Arriving:
		switch len(w.Ranks) {
		case 0:
			return ": all ranks have arrived"
		case 1:
			return ": " + Ranks(w.Ranks) + " has not arrived" + w.lastCalls()
		}
		return ": " + Ranks(w.Ranks) + " have not arrived" + w.lastCalls()
	case Finishing:
		return ": " + Ranks(w.Ranks) + " arrived and did not finish"
	case Exchanging:
		return ": it was waiting for " + strings.Join(eachRank(w.Ranks), " or ")
	case Sending, Receiving:
		does, did := "send to", "sends"
		if w.Phase == Sending {
			does, did = "receive from", "receives"
		}
		if len(w.Ranks) == 0 {
			return fmt.Sprintf(": no rank sent to rank %d with tag %d", f.Rank, f.Tag)
		}
		text := fmt.Sprintf(": %s did not %s rank %d with tag %d", Ranks(w.Ranks), does, f.Rank, f.Tag)
		if w.OtherTag != nil {
			text += fmt.Sprintf(" (it %s with tag %d)", did, *w.OtherTag)
		}
		return text
	case DeviceAtWork:
		return fmt.Sprintf(": %s was at work, and all ranks had begun", f.Device)
	case DeviceAhead:
		return fmt.Sprintf(": %s was at work, and all ranks had started the operation", f.Device)
	}
	return ""
}

// lastCalls lists the last calls of the ranks in Last, in parentheses; "" if there are none.
func (w *Wait) lastCalls() string {
	var list []string
	for _, s := range w.Last {
		switch {
		case s.Call.Fingerprint.Verb == 0:
			list = append(list, fmt.Sprintf("rank %d has called nothing yet", s.Rank))
		case w.Phase == Arriving:
			list = append(list, fmt.Sprintf("rank %d last called %s", s.Rank, s.Call))
		default:
			list = append(list, fmt.Sprintf("rank %d was last heard of in %s", s.Rank, s.Call))
		}
	}
	if list == nil {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

// elements returns the number of elements and their type.
func (s Fingerprint) elements() string { return fmt.Sprintf("%d x %s", s.Count, s.Type) }

func eachRank(list []int) (texts []string) {
	for _, r := range list {
		texts = append(texts, fmt.Sprintf("rank %d", r))
	}
	return texts
}

func areRanks(ranks []int) string {
	if len(ranks) == 1 {
		return Ranks(ranks) + " is"
	}
	return Ranks(ranks) + " are"
}

// Ranks writes a list of ranks for an error: "rank 3", "ranks 0, 2 and 5".
func Ranks(list []int) string {
	switch len(list) {
	case 0:
		return "no rank"
	case 1:
		return fmt.Sprintf("rank %d", list[0])
	}
	const most = 16
	var b strings.Builder
	b.WriteString("ranks ")
	for i, r := range list {
		switch {
		case i == most:
			fmt.Fprintf(&b, " and %d more", len(list)-most)
			return b.String()
		case i == 0:
		case i == len(list)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d", r)
	}
	return b.String()
}
