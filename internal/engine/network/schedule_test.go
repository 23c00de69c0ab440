package network

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

const maxRanks = 40

// TestLayout checks that the parts of a layout cover the memory in order.
func TestLayout(t *testing.T) {
	for ranks := 1; ranks <= maxRanks; ranks++ {
		for _, n := range []int{0, 1, 15, 16, 17, 1000, 4096} {
			for _, unit := range []int{1, 16} {
				l := layout{mem: mem32(make([]float32, n)), ranks: ranks, unit: unit}
				end := 0
				for r := range ranks {
					if begin := l.begin(r); begin != end || begin%unit != 0 && begin != n {
						t.Fatalf("%d elements, %d ranks: part %d begins at %d, the one before ends at %d", n, ranks, r, begin, end)
					}
					end += l.at(r).N
				}
				if end != n {
					t.Fatalf("%d elements, %d ranks: the parts have %d elements", n, ranks, end)
				}
			}
		}
	}
}

// TestFold checks that the active ranks of a fold are a power of two and stand for
// all ranks.
func TestFold(t *testing.T) {
	for ranks := 1; ranks <= maxRanks; ranks++ {
		f := newFold(ranks)
		next := 0
		for v := range f.active {
			r := f.rank(v)
			if r != next || f.number(r) != v || f.folded(r) {
				t.Fatalf("%d ranks: number %d is rank %d, which is number %d; the rank before was %d", ranks, v, r, f.number(r), next-1)
			}
			next++
			if f.absorbs(r) {
				if !f.folded(next) {
					t.Fatalf("%d ranks: rank %d stands for rank %d, which does not sit out", ranks, r, next)
				}
				next++
			}
		}
		if next != ranks || f.rank(f.active) != ranks || f.active&(f.active-1) != 0 {
			t.Fatalf("%d ranks: %d are left, which stand for %d", ranks, f.active, next)
		}
	}
}

// TestHalve checks that halving leaves every number with its own part, and that
// partners keep the parts that they receive.
func TestHalve(t *testing.T) {
	for ranks := 1; ranks <= 64; ranks *= 2 {
		for v := range ranks {
			first, last := 0, ranks
			for width := ranks / 2; width > 0; width /= 2 {
				h, p := halve(v, width), halve(v^width, width)
				if h.partner != v^width || p.partner != v || h.keepFirst != p.sendFirst || h.keepLast != p.sendLast {
					t.Fatalf("%d ranks: number %d does %+v, number %d does %+v", ranks, v, h, h.partner, p)
				}
				if min(h.keepFirst, h.sendFirst) != first || max(h.keepLast, h.sendLast) != last || h.keepLast-h.keepFirst != width {
					t.Fatalf("%d ranks: number %d had %d to %d and does %+v", ranks, v, first, last, h)
				}
				first, last = h.keepFirst, h.keepLast
			}
			if first != v || last != v+1 {
				t.Fatalf("%d ranks: number %d ends with %d to %d", ranks, v, first, last)
			}
		}
	}
}

// TestTree checks that every number of a tree has one parent, and that the numbers
// of a subtree are adjacent.
func TestTree(t *testing.T) {
	for ranks := 1; ranks <= maxRanks; ranks++ {
		if subtreeSize(0, ranks) != ranks {
			t.Fatalf("%d ranks: %d are below the root", ranks, subtreeSize(0, ranks))
		}
		parents := make([]int, ranks)
		for v := range ranks {
			rest := subtreeSize(v, ranks) - 1
			for d := 1; d < subtreeSpan(v, ranks) && v+d < ranks; d *= 2 {
				if got := v + d - subtreeSpan(v+d, ranks); got != v {
					t.Fatalf("%d ranks: number %d is below %d, and thinks it is below %d", ranks, v+d, v, got)
				}
				parents[v+d]++
				rest -= subtreeSize(v+d, ranks)
			}
			if rest != 0 {
				t.Fatalf("%d ranks: the branches of number %d leave %d out", ranks, v, rest)
			}
		}
		if parents[0] != 0 || slices.ContainsFunc(parents[1:], func(n int) bool { return n != 1 }) {
			t.Fatalf("%d ranks: the numbers are below %v others", ranks, parents)
		}
	}
}

// TestPartner checks that in each round ranks exchange in pairs, and in all rounds
// with all ranks.
func TestPartner(t *testing.T) {
	for ranks := 1; ranks <= maxRanks; ranks++ {
		for r := range ranks {
			met := make([]bool, ranks)
			for k := range ranks {
				p := partner(r, k, ranks)
				if partner(p, k, ranks) != r || met[p] {
					t.Fatalf("%d ranks, round %d: rank %d meets rank %d, again: %v", ranks, k, r, p, met[p])
				}
				met[p] = true
			}
		}
	}
}

// TestChoose checks that the algorithm chosen for a call, forced or not, can run
// it.
func TestChoose(t *testing.T) {
	for v := engine.AllReduce; v <= engine.Alloc; v++ {
		for alg := Algorithm(0); alg <= Dissemination; alg++ {
			for _, reproducible := range []bool{false, true} {
				o := Options{Reproducible: reproducible, Algorithms: Algorithms{alg, alg, alg, alg, alg, alg, alg, alg, alg}}
				last := Algorithm(0)
				for _, n := range []int64{0, 1, 1 << 10, 1 << 20, 1 << 40} {
					s := engine.Fingerprint{Verb: v, Type: kernel.Float32, Count: n}
					inOrder := false
					if v.Reduces() {
						s.ReduceOp, inOrder = engine.Sum, reproducible
					}
					name := fmt.Sprintf("%s, forced %v, reproducible %v", s.Text(""), alg, reproducible)
					got := o.choose(s, 8)
					if !canDo(v, got, inOrder) {
						t.Fatalf("%s: %v", name, got)
					}
					if last != 0 && got != last && canDo(v, alg, inOrder) {
						t.Fatalf("%s: %v, for less %v", name, got, last)
					}
					last = got
				}
			}
		}
	}
}
