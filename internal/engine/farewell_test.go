package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFarewell(t *testing.T) {
	for _, f := range []*Failure{
		{Kind: ErrRankLost, Op: "AllReduce", Seq: 1 << 40, Rank: 3, Lost: []int{1, 2}, Reason: "rank 1 is lost: its host does not answer"},
		{Kind: ErrCorrupt, Op: "AllGather", Seq: 3, Rank: 1, Reason: "the result of rank 1 is not that of the others"},
		{Kind: ErrNoDevicePath, Rank: 1, Reason: "no NCCL was found"},
		{Kind: ErrTimeout, Rank: 0, Reason: "not done after 1m0s", Left: true},
		{Kind: ErrAborted, Op: forming, Rank: 1, Above: []int{9, 4}, Reason: "rank 9 is lost"},
		{Kind: ErrRankLost, Op: forming, Rank: 1, Lost: []int{2, 3}, Above: []int{0, 7}, Reason: "four ranks are lost"},
		{Kind: ErrAborted, Op: "Barrier", Seq: 1, Rank: 2, Reason: strings.Repeat("länger als der Platz ", 20), Told: true},
	} {
		w := NewFarewell(f)
		for _, whole := range []bool{false, true} {
			got := w.Failure(4, whole)
			if got == nil {
				t.Fatalf("%v: nothing came over", f)
			}
			start := strings.TrimSuffix(got.Reason, "...")
			if got.Reason != f.Reason && (len(start) < 60 || !strings.HasPrefix(f.Reason, start) || start == got.Reason) || !utf8.ValidString(got.Reason) {
				t.Errorf("the reason %q became %q", f.Reason, got.Reason)
			}
			if got.Kind != f.Kind || got.Op != f.Op || got.Seq != f.Seq || got.Rank != f.Rank || !slices.Equal(got.Lost, f.Lost) ||
				!slices.Equal(got.Above, f.Above) || got.Left != f.Left || got.Told != (f.Told && !whole) {
				t.Errorf("%+v became %+v", f, got)
			}
		}
	}
	if w := NewFarewell(nil); w.Failure(4, true) != nil {
		t.Error("no failure became one")
	}
	if w := NewFarewell(&Failure{Kind: ErrRankLost, Lost: []int{5}, Reason: "x"}); w.Failure(5, true) != nil {
		t.Error("a rank was lost that does not exist")
	}
}

// A rank that hears in a new group, from a member that leaves it, whom the group
// that it is made of has lost takes that as its cause, with all that it says.
func TestLifted(t *testing.T) {
	members := []int{7, 2, 4}
	for _, c := range []struct {
		f    Failure
		want string
		lost []int
	}{
		{
			Failure{Kind: ErrRankLost, Lost: []int{0}, Reason: "rank 0 is lost"},
			"a rank was lost: rank 0 is lost, as rank 2 found while the group of ranks 7, 2 and 4 was being made: a rank was lost: rank 0 is lost",
			[]int{0},
		}, {
			Failure{Kind: ErrRankLost, Lost: []int{0, 4}, Reason: "ranks 0 and 4 are lost"},
			"a rank was lost: ranks 4 and 0 are lost, as rank 2 found while the group of ranks 7, 2 and 4 was being made: a rank was lost: ranks 0 and 4 are lost",
			[]int{4, 0},
		}, {
			Failure{Kind: ErrRankLost, Lost: []int{0, 1, 3, 5, 6}, Reason: "all are lost"},
			"a rank was lost: ranks 0, 1, 3 and 5 are lost, as rank 2 found while the group of ranks 7, 2 and 4 was being made: a rank was lost: all are lost",
			[]int{0, 1, 3, 5},
		}, {
			Failure{Kind: ErrRankLost, Lost: []int{0}, Left: true, Reason: "rank 0 has closed"},
			"a rank was lost: the group of ranks 7, 2 and 4 could not be made; with its own numbers: the group that this one was being made of has failed: a rank was lost: rank 0 has closed",
			[]int{0},
		}, {
			Failure{Kind: ErrTimeout, Reason: "late"},
			"timed out: the group of ranks 7, 2 and 4 could not be made; with its own numbers: the group that this one was being made of has failed: timed out: late",
			nil,
		},
	} {
		w := NewFarewell(inherited(&c.f, members, 1))
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

// What comes from another process may be anything.
func TestFarewellGarbage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		w := NewFarewell(&Failure{Kind: ErrRankLost, Op: "Split", Lost: []int{1}, Reason: "gone"})
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

func TestExcuse(t *testing.T) {
	lost := &Failure{Kind: ErrRankLost, Lost: []int{1}, Reason: "rank 1 is lost"}
	left := &Failure{Kind: ErrRankLost, Lost: []int{1}, Left: true, Reason: "rank 1 has closed the communicator"}
	for _, c := range []struct {
		f     *Failure
		group []int
		want  string
	}{
		{nil, []int{4, 5}, "<nil>"},
		{lost, []int{4, 7, 9}, "a rank was lost: rank 1 is lost, as rank 0 found in another group"},
		{lost, []int{4, 9}, "a rank was lost: rank 0 has left after another group's end: a rank was lost: rank 1 is lost"},
		{left, []int{4, 7}, "a rank was lost: rank 0 has left after another group's end: a rank was lost: rank 1 has closed the communicator"},
	} {
		got := Excuse(c.f, []int{4, 7}, c.group, 0)
		if text := fmt.Sprint(got); text != c.want {
			t.Errorf("%v, want %s", got, c.want)
		}
	}
}
