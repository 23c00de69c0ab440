package engine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tutti-go/tutti/internal/kernel"
)

// TestExitReason checks which fields of a failure survive as an ExitReason, that a long text is cut between
// characters, and that a lost rank that does not exist makes the reason invalid.
func TestExitReason(t *testing.T) {
	for _, f := range []*Failure{
		{Kind: ErrRankLost, Op: "AllReduce", Seq: 1 << 40, Rank: 3, Lost: []int{1, 2}, Facts: Facts{Text: "rank 1 is lost: its host does not answer"}},
		{Kind: ErrCorrupt, Op: "AllGather", Seq: 3, Rank: 1, Facts: Facts{Text: "the result of rank 1 is not that of the others"}},
		{Kind: ErrNoDevicePath, Rank: 1, Facts: Facts{Text: "no NCCL was found"}},
		{Kind: ErrTimeout, Rank: 0, Facts: Facts{Text: "not done after 1m0s"}, Left: true},
		{Kind: ErrAborted, Op: forming, Rank: 1, Above: []int{9, 4}, Facts: Facts{Text: "rank 9 is lost"}},
		{Kind: ErrRankLost, Op: forming, Rank: 1, Lost: []int{2, 3}, Above: []int{0, 7}, Facts: Facts{Text: "four ranks are lost"}},
		{Kind: ErrAborted, Op: "Barrier", Seq: 1, Rank: 2, Facts: Facts{Text: strings.Repeat("länger als der Platz ", 20)}, Told: true},
	} {
		w := NewExitReason(f)
		for _, whole := range []bool{false, true} {
			got := w.Failure(4, whole)
			if got == nil {
				t.Fatalf("%v: nothing came over", f)
			}
			start := strings.TrimSuffix(got.Text, "...")
			if got.Text != f.Text && (len(start) < 60 || !strings.HasPrefix(f.Text, start) || start == got.Text) || !utf8.ValidString(got.Text) {
				t.Errorf("the reason %q became %q", f.Text, got.Text)
			}
			if got.Kind != f.Kind || got.Op != f.Op || got.Seq != f.Seq || got.Rank != f.Rank || !slices.Equal(got.Lost, f.Lost) ||
				!slices.Equal(got.Above, f.Above) || got.Left != f.Left || got.Told != (f.Told && !whole) {
				t.Errorf("%+v became %+v", f, got)
			}
		}
	}
	if w := NewExitReason(nil); w.Failure(4, true) != nil {
		t.Error("no failure became one")
	}
	if w := NewExitReason(&Failure{Kind: ErrRankLost, Lost: []int{5}, Facts: Facts{Text: "x"}}); w.Failure(5, true) != nil {
		t.Error("a rank was lost that does not exist")
	}
}

// TestLifted has a member leave a new group because the parent group has lost ranks. The other
// members must take the whole exit reason as their cause.
func TestLifted(t *testing.T) {
	members := []int{7, 2, 4}
	for _, c := range []struct {
		f    Failure
		want string
		lost []int
	}{
		{
			Failure{Kind: ErrRankLost, Lost: []int{0}, Facts: Facts{Text: "rank 0 is lost"}},
			"a rank was lost: rank 0 is lost, as rank 2 found while the Comm of ranks 7, 2 and 4 was being made: rank 0 is lost; call Shrink to continue without it",
			[]int{0},
		}, {
			Failure{Kind: ErrRankLost, Lost: []int{0, 4}, Facts: Facts{Text: "ranks 0 and 4 are lost"}},
			"a rank was lost: ranks 4 and 0 are lost, as rank 2 found while the Comm of ranks 7, 2 and 4 was being made: ranks 0 and 4 are lost; call Shrink to continue without them",
			[]int{4, 0},
		}, {
			Failure{Kind: ErrRankLost, Lost: []int{0, 1, 3, 5, 6}, Facts: Facts{Text: "all are lost"}},
			"a rank was lost: ranks 0, 1, 3 and 5 are lost, as rank 2 found while the Comm of ranks 7, 2 and 4 was being made: all are lost; call Shrink to continue without them",
			[]int{0, 1, 3, 5},
		}, {
			Failure{Kind: ErrRankLost, Lost: []int{0}, Left: true, Facts: Facts{Text: "rank 0 has closed"}},
			"a rank was lost: the Comm of ranks 7, 2 and 4 could not be made on rank 2: rank 0 has closed",
			[]int{0},
		}, {
			Failure{Kind: ErrTimeout, Facts: Facts{Text: "late"}},
			"timed out: the Comm of ranks 7, 2 and 4 could not be made on rank 2: late",
			nil,
		},
	} {
		w := NewExitReason(inherited(&c.f, members, 1))
		said := w.Failure(len(members), true)
		if said == nil {
			t.Fatalf("%v: nothing came over", &c.f)
		}
		got := lifted(said, members, 8)
		if got.Error() != c.want || !slices.Equal(got.Lost, c.lost) || got.Kind != c.f.Kind || got.Left != c.f.Left {
			t.Errorf("%v became %+v: %v", &c.f, got, got)
		}
		if got := lifted(said, members, 0); slices.ContainsFunc(got.Lost, func(r int) bool { return !slices.Contains(members, r) }) {
			t.Errorf("%v: a rank was lost that does not exist", got)
		}
	}
}

// TestLiftedNumbers checks that a failure of the new group is renumbered for the parent group.
func TestLiftedNumbers(t *testing.T) {
	f := &Failure{Kind: ErrTimeout, Op: forming, Rank: 2, Facts: Facts{
		Event: LimitPassed, Limit: time.Second, Wait: Wait{Phase: Arriving, Ranks: []int{0, 1}, Last: []Side{{Rank: 0}}},
	}}
	const want = "timed out: the Comm of ranks 7, 2 and 4 could not be made on rank 4: " +
		"not done after 1s: ranks 7 and 2 have not arrived (rank 7 has called nothing yet)"
	if got := lifted(f, []int{7, 2, 4}, 8); got.Error() != want || got.Rank != 4 {
		t.Errorf("%v, want %s", got, want)
	}
	if f.Wait.Ranks[0] != 0 || f.Wait.Last[0].Rank != 0 {
		t.Errorf("the failure itself was changed: %+v", f)
	}
}

// allFacts returns failures that together have every kind of fact.
func allFacts() (list []*Failure) {
	call := CallInfo{Fingerprint: Fingerprint{Verb: AllReduce, Type: kernel.Float32, ReduceOp: Sum, Count: 20000, Name: 2}, Name: "bias"}
	sides := []Side{{Rank: 1, Call: call, N: 3, Step: 9, Algorithm: "ring"}, {Rank: 3, Call: CallInfo{Fingerprint: Fingerprint{Verb: Barrier}}, N: 4, Step: 10, Algorithm: "tree"}}
	tag := -5
	for event := Described + 1; event < numEvents; event++ {
		f := &Failure{Kind: ErrTimeout, Op: "AllReduce", Seq: 7, Rank: 1, Lost: []int{2, 3}, Facts: Facts{Event: event, Ranks: []int{1, 2}, Tag: 4}}
		switch {
		case f.Interrupted():
			for phase := PhaseUnknown; phase < numPhases; phase++ {
				for relay := NoRelay; relay < numRelays; relay++ {
					p := *f
					p.Limit, p.Device = 20*time.Millisecond, "device 0"
					p.Wait = Wait{Phase: phase, Ranks: []int{0, 2}, Unheard: []int{3}, Behind: []int{2}, OtherTag: &tag, Relay: relay, Last: sides[1:]}
					if relay != NoRelay {
						p.Wait.Beyond, p.Wait.Leader = []int{0, 3}, 2
					}
					if phase == PhaseUnknown {
						p.Wait = Wait{}
					}
					list = append(list, &p)
				}
			}
			continue
		case event == RanksLost:
			for _, loss := range []Loss{"", Closed, Exited, HostSilent, Disconnected, JoinFailed, "another"} {
				p := *f
				p.Kind, p.Loss, p.Text, p.Left = ErrRankLost, loss, "an error", loss == Closed
				list = append(list, &p)
			}
			continue
		case event == LeftElsewhere, event == LostWhileForming, event == ParentFailed, event == FormingFailed:
			f.Cause = &Failure{Kind: ErrRankLost, Op: "Barrier", Seq: 2, Rank: 5, Lost: []int{6}, Left: true, Facts: Facts{Event: RanksLost, Loss: Exited}}
		default:
			f.Sides, f.Text, f.Device = sides, "an error", "device 0"
		}
		list = append(list, f)
	}
	return list
}

// TestFactsTravel checks that an ExitReason and JSON preserve all facts and the text of a failure.
func TestFactsTravel(t *testing.T) {
	for _, f := range allFacts() {
		if f.Event != Described && f.Reason() == f.Text || f.Reason() == new(Failure).Reason() {
			t.Errorf("event %d has no text of its own: %v", f.Event, f)
		}
		w := NewExitReason(f)
		if got := w.Failure(4, true); got == nil || got.Error() != f.Error() || !reflect.DeepEqual(got.Cause, f.Cause) {
			t.Errorf("%v\ncame over as %v", f, got)
		}
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		got := new(Failure)
		if err := json.Unmarshal(text, got); err != nil || !reflect.DeepEqual(got, f) {
			t.Errorf("%+v, %v\ncame over as %+v, %v", f, f, got, err)
		}
		if same := f.Renumber([]int{0, 1, 2, 3}); !reflect.DeepEqual(same, f.Facts) {
			t.Errorf("%+v was renumbered to %+v", f.Facts, same)
		}
	}
}

// TestExitReasonIsShort checks that facts that do not fit are omitted, and that the others are correct.
func TestExitReasonIsShort(t *testing.T) {
	name := strings.Repeat("n", 31)
	many := make([]int, 100)
	for i := range many {
		many[i] = 1000 + i
	}
	for _, c := range []struct {
		facts Facts
		want  string
	}{
		{
			Facts{Event: CallsDiffer, Sides: []Side{
				{Rank: 1, Call: CallInfo{Fingerprint: Fingerprint{Verb: Reduce, Type: kernel.Float32, ReduceOp: Sum, Root: 3, Count: 1 << 40, Name: 2}, Name: name}},
				{Rank: 0, Call: CallInfo{Fingerprint: Fingerprint{Verb: Barrier, Name: 2}, Name: name}},
			}},
			`rank 1 called Reduce(1099511627776 x float32, sum, root 3, name "nnn`,
		},
		{Facts{Event: LimitPassed, Limit: time.Second, Wait: Wait{Phase: Arriving, Ranks: many}}, "not done after 1s"},
		{
			Facts{Event: LeftElsewhere, Cause: &Failure{Kind: ErrAborted, Facts: Facts{Event: AbortCalled, Text: strings.Repeat("x", 200)}}},
			"rank 0 has left after the failure of another Comm: aborted: Abort was called on rank 0: xxxx",
		},
	} {
		f := &Failure{Kind: ErrMismatch, Op: "AllReduce", Seq: 1, Facts: c.facts}
		w := NewExitReason(f)
		got := w.Failure(4, true)
		if got == nil || !strings.HasPrefix(got.Reason(), c.want) || c.facts.Limit != 0 && got.Reason() != c.want {
			t.Errorf("%v\ncame over as %v", f, got)
		}
		if c.facts.Sides != nil && !strings.Contains(got.Reason(), `rank 0 called Barrier(name "nnn`) {
			t.Errorf("a side is missing: %v", got)
		}
	}
}

// TestExitReasonGarbage reads exit reasons with random bytes, as another process may leave them. They decode
// to nil or to a failure whose ranks exist.
func TestExitReasonGarbage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	list := append(allFacts(), &Failure{Kind: ErrRankLost, Op: "Split", Lost: []int{1}, Facts: Facts{Text: "gone"}})
	for i := range 100_000 {
		w := NewExitReason(list[i%len(list)])
		for range 1 + rnd.IntN(4) {
			w[rnd.IntN(len(w))] = byte(rnd.Uint32())
		}
		if f := w.Failure(3, true); f != nil {
			_ = f.Error()
			if f.Rank < 0 || f.Rank > 2 || slices.ContainsFunc(f.Lost, func(r int) bool { return r < 0 || r > 2 }) {
				t.Fatalf("%x: %+v", w, f)
			}
		}
	}
}

// TestExcuse checks the failure that a rank reports about a rank that left after the failure of another
// group.
func TestExcuse(t *testing.T) {
	lost := &Failure{Kind: ErrRankLost, Lost: []int{1}, Facts: Facts{Text: "rank 1 is lost"}}
	left := &Failure{Kind: ErrRankLost, Lost: []int{1}, Left: true, Facts: Facts{Text: "rank 1 has closed the Comm"}}
	for _, c := range []struct {
		f     *Failure
		group []int
		want  string
	}{
		{nil, []int{4, 5}, "<nil>"},
		{lost, []int{4, 7, 9}, "a rank was lost: rank 1 is lost, as rank 0 found on another Comm; call Shrink to continue without it"},
		{lost, []int{4, 9}, "a rank was lost: rank 0 has left after the failure of another Comm: rank 1 is lost"},
		{left, []int{4, 7}, "a rank was lost: rank 0 has left after the failure of another Comm: rank 1 has closed the Comm"},
	} {
		got := Excuse(c.f, []int{4, 7}, c.group, 0)
		if text := fmt.Sprint(got); text != c.want {
			t.Errorf("%v, want %s", got, c.want)
		}
	}
}
