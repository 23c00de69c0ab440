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
				got.Left != f.Left || got.Told != (f.Told && !whole) {
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
