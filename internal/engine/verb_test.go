package engine

import (
	"hash/fnv"
	"testing"

	"github.com/tutti-go/tutti/internal/kernel"
)

// TestVerbTable checks that every verb has a name, that every verb of user data
// has sides that ranks use, and that the facts about a verb agree.
func TestVerbTable(t *testing.T) {
	for v := AllReduce; v <= Group; v++ {
		i := v.Info()
		if i.Name == "" {
			t.Errorf("verb %d has no name", v)
		}
		if v < Barrier && (i.Source.Ranks == NoRank || i.Dest.Ranks == NoRank || !i.Typed) {
			t.Errorf("%v reads on party %d, writes on party %d, typed %v", v, i.Source.Ranks, i.Dest.Ranks, i.Typed)
		}
		some := func(p Party) bool { return p == RootOnly || p == AllButRoot }
		if rooted := some(i.Source.Ranks) || some(i.Dest.Ranks); rooted != i.Rooted {
			t.Errorf("%v: Rooted is %v, but its sides say %v", v, i.Rooted, rooted)
		}
		if divided := i.Source.Divided || i.Dest.Divided; v < Barrier && divided != (i.Uneven != "") {
			t.Errorf("%v: a side is divided: %v, and the uneven form is %q", v, divided, i.Uneven)
		}
		if i.Reduces && i.Dest.Divided {
			t.Errorf("%v reduces into a divided destination", v)
		}
		if i.Prefix != NoPrefix && (!i.Reduces || i.Rooted || i.EqualResults || i.Source != (Operand{Ranks: EveryRank}) || i.Dest.Divided) {
			t.Errorf("%v combines a prefix, but its other facts do not fit", v)
		}
		for rank := range 3 {
			if some := i.Prefix.Sources(rank, 3) > 0; i.Prefix != NoPrefix && some != i.Dest.Ranks.Has(rank, 0) {
				t.Errorf("%v writes on rank %d: %v", v, rank, !some)
			}
		}
		for _, s := range []Operand{i.Source, i.Dest} {
			other := i.Source
			if s == i.Source {
				other = i.Dest
			}
			if s.Divided && !other.Divided && other.Ranks != EveryRank {
				t.Errorf("%v: not every rank uses the side that is not divided", v)
			}
		}
	}
	for v := Group + 1; v != AllReduce; v++ {
		if *v.Info() != (VerbInfo{}) || v.String() == "" {
			t.Errorf("%v is known", v)
		}
	}
}

// TestOpTable checks that the facts about each operator in opTable agree, that unknown operators are invalid,
// and the factors of PreMul and Avg.
func TestOpTable(t *testing.T) {
	for r := Sum; r <= ReduceOp(NumOps); r++ {
		i := r.Info()
		if !r.Valid() || OpNamed(i.Name) != r {
			t.Errorf("operator %d has the name %q", r, i.Name)
		}
		if inner := i.Inner.Info(); inner.Scaling != NoScaling || inner.Kernel != i.Kernel || inner.Inner != i.Inner {
			t.Errorf("%v combines scaled elements by %v", r, i.Inner)
		}
		if r.Scales() && i.Elements != Floats {
			t.Errorf("%v scales and takes integers", r)
		}
		for dt := kernel.Int8; dt.Valid(); dt++ {
			if takes := i.Kernel.Takes(dt) && (dt.IsFloat() || !r.Scales()); r.Takes(dt) != takes {
				t.Errorf("%v takes %v: %v", r, dt, !takes)
			}
		}
	}
	for r := ReduceOp(NumOps + 1); r != Sum; r++ {
		if r.Valid() || r.Takes(kernel.Float32) || r.Takes(kernel.Int32) || r.String() == "" {
			t.Errorf("%v is known", r)
		}
	}
	c := Call{Verb: AllReduce, ReduceOp: PreMul, Scale: 3}
	if c.Factor(4) != 3 {
		t.Errorf("premul multiplies by %v", c.Factor(4))
	}
	if c.ReduceOp = Avg; c.Factor(4) != 0.25 {
		t.Errorf("avg of 4 ranks multiplies by %v", c.Factor(4))
	}
	if c.Verb = Broadcast; c.Factor(4) != 1 {
		t.Errorf("Broadcast multiplies by %v", c.Factor(4))
	}
}

// TestHash compares Hash with the standard library.
func TestHash(t *testing.T) {
	h := fnv.New64a()
	_, _ = h.Write([]byte("tutti\x01\x02\x00\x00\x00\x00\x00\x00\x00ab"))
	if got := HashStart.Text("tutti\x01").Uint64(2).Bytes([]byte("ab")); uint64(got) != h.Sum64() {
		t.Errorf("%x, want %x", got, h.Sum64())
	}
	if HashStart.NonZero() != uint64(HashStart) || Hash(0).NonZero() == 0 {
		t.Error("NonZero changes a hash, or returns zero")
	}
}
