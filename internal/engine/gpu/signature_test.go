package gpu

import (
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// TestCommonPrefix checks the number of equal next operations that ranks find with their digests.
func TestCommonPrefix(t *testing.T) {
	list := func(n, odd int) []uint64 {
		signs := make([]uint64, n)
		for i := range signs {
			if signs[i] = 7; i == odd {
				signs[i] = 8
			}
		}
		return signs
	}
	for name, c := range map[string]struct {
		ranks [][]uint64
		want  int
	}{
		"one":                        {[][]uint64{list(1, -1), list(1, -1)}, 1},
		"the first differs":          {[][]uint64{list(16, 0), list(16, -1)}, 0},
		"one knows only its first":   {[][]uint64{list(16, -1), list(1, -1), list(16, -1)}, 1},
		"the second differs":         {[][]uint64{list(16, -1), list(16, 1)}, 1},
		"three":                      {[][]uint64{list(3, -1), list(3, -1)}, 3},
		"the third differs":          {[][]uint64{list(3, -1), list(3, 2)}, 1},
		"three, and more":            {[][]uint64{list(3, -1), list(4, -1)}, 1},
		"eight, and more":            {[][]uint64{list(8, -1), list(15, -1)}, 8},
		"the ninth differs":          {[][]uint64{list(16, 8), list(16, -1)}, 8},
		"the eighth differs":         {[][]uint64{list(16, -1), list(17, -1), list(16, 7)}, 1},
		"forty":                      {[][]uint64{list(40, -1), list(40, -1)}, 40},
		"forty, and not all alike":   {[][]uint64{list(40, 3), list(40, 3)}, 40},
		"sixty-four, and more":       {[][]uint64{list(255, -1), list(64, -1)}, 64},
		"the last differs":           {[][]uint64{list(256, -1), list(256, 255)}, 64},
		"all":                        {[][]uint64{list(256, 100), list(256, 100), list(256, 100)}, 256},
		"the same, in another order": {[][]uint64{list(16, 3), list(16, 2)}, 1},
		"one rank":                   {[][]uint64{list(16, -1)}, 16},
	} {
		e := &Engine{size: len(c.ranks)}
		for _, signs := range c.ranks {
			m := digestOf(signs[0], signs[1:])
			e.digests = append(e.digests, m[:]...)
		}
		if got := e.commonPrefix(); got != c.want {
			t.Errorf("%s: %d are the same, not %d", name, got, c.want)
		}
	}
}

// TestSignature checks that operations that can be compared ahead have distinct signatures, and that
// other operations have none.
func TestSignature(t *testing.T) {
	e := &Engine{size: 2}
	mem := func(n int, device int16) engine.Mem { return engine.Mem{N: n, Type: kernel.Float32, Device: device} }
	call := func(v engine.Verb, n int, device int16) engine.Call {
		return engine.Call{Verb: v, Dst: mem(n, device), Src: mem(n, device)}
	}
	a := call(engine.AllReduce, 4, 1)
	b, named := a, a
	b.Red, named.Name = engine.Max, "x"
	seen := map[uint64]int{}
	for i, calls := range [][]engine.Call{
		{a}, {b}, {named}, {a, a}, {a, b}, {b, a}, {call(engine.AllReduce, 5, 1)}, {call(engine.Broadcast, 4, 1)},
	} {
		s := e.signature(calls)
		if j, double := seen[s]; s == 0 || double || s != e.signature(calls) {
			t.Errorf("%d has the signature %d, as has %d", i, s, j)
		}
		seen[s] = i
	}
	uneven := engine.Call{Verb: engine.AllGather, Uneven: true, Src: mem(4, 1), DstParts: []engine.Mem{mem(4, 1), mem(4, 1)}}
	for i, calls := range [][]engine.Call{{call(engine.AllReduce, 4, 0)}, {a, call(engine.AllReduce, 4, 0)}, {{Verb: engine.Barrier}}, {uneven}} {
		if s := e.signature(calls); s != 0 {
			t.Errorf("%d has the signature %d", i, s)
		}
	}
}
