package bench

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/kernel"
)

// TestPairRounds checks that each rank is paired with each other rank once, and
// with at most one rank at a time.
func TestPairRounds(t *testing.T) {
	for n := 2; n < 20; n++ {
		met := map[[2]int]int{}
		for round := range n - 1 + n%2 {
			for r := range n {
				other := partner(r, round, n)
				if other != r && partner(other, round, n) != r {
					t.Fatalf("%d ranks, round %d: %d meets %d, who meets %d", n, round, r, other, partner(other, round, n))
				}
				if other > r {
					met[[2]int{r, other}]++
				}
			}
		}
		if len(met) != n*(n-1)/2 {
			t.Errorf("%d ranks: %d pairs", n, len(met))
		}
		for p, times := range met {
			if times != 1 {
				t.Errorf("%d ranks: %v met %d times", n, p, times)
			}
		}
	}
}

// testLinks returns all links of n ranks, of which some are slow.
func testLinks(n int, slow func(from, to int) bool) (list []Link) {
	for from := range n {
		for to := range n {
			if from == to {
				continue
			}
			// No two links have the same speed.
			l := Link{From: from, To: to, Small: Result{P50: 10 + float64(from)}, Large: Result{P50: 200 + float64(5*to)}}
			if slow(from, to) {
				l.Small.P50, l.Large.P50 = 500, 5000
			}
			l.Large.AlgBW = largeBytes / l.Large.P50 / 1e3
			list = append(list, l)
		}
	}
	return list
}

// TestOutliers checks whether a rank or single links are reported as slow.
func TestOutliers(t *testing.T) {
	for _, c := range []struct {
		n    int
		slow func(from, to int) bool
		want []string
	}{
		{4, func(int, int) bool { return false }, nil},
		{2, func(int, int) bool { return false }, nil},
		{3, func(a, b int) bool { return a == 1 || b == 1 }, []string{"rank 1 is slow: 4 of its 4 links"}},
		{8, func(a, b int) bool { return a == 5 || b == 5 }, []string{"rank 5 is slow: 14 of its 14 links"}},
		{4, func(a, b int) bool { return a == 2 && b == 3 }, []string{"the link from rank 2 to rank 3 is slow: a small message takes 500.0 us (usual: "}},
		{6, func(a, b int) bool { return a+b == 9 && a*b == 20 }, []string{"the link from rank 4 to rank 5", "the link from rank 5 to rank 4"}},
	} {
		got := Outliers(testLinks(c.n, c.slow), c.n, false)
		if len(got) != len(c.want) {
			t.Errorf("%d ranks: %q, not %q", c.n, got, c.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], c.want[i]) {
				t.Errorf("%q, not %q", got[i], c.want[i])
			}
		}
	}
}

// TestOutliersByKind checks that links between hosts are not reported because they
// are slower than links within a host.
func TestOutliersByKind(t *testing.T) {
	list := testLinks(4, func(a, b int) bool { return a/2 != b/2 })
	for i := range list {
		list[i].Remote = list[i].From/2 != list[i].To/2
	}
	if got := Outliers(list, 4, false); got != nil {
		t.Error(got)
	}
}

// TestPatternExact reduces in both directions, in the element type. The bits must
// not depend on the order.
func TestPatternExact(t *testing.T) {
	for _, n := range []int{1, 2, 3, 16, 100, 256, 512} {
		for d := tutti.Int8Type; kernel.DType(d).Valid(); d++ {
			for _, red := range ReduceNames() {
				if red == "avg" || !reducible(d.String(), red) { // an average may be rounded
					continue
				}
				p := newPattern(d, red, n)
				want := p.result(n)
				for _, reverse := range []bool{false, true} {
					got := bytes.Clone(want)
					for k := 0; k < period; k += 13 {
						acc := 0.0
						for i := range n {
							r := i
							if reverse {
								r = n - 1 - i
							}
							x := get(d, p.source(r), k)
							if red == "premul" {
								x *= preMul
							}
							if i == 0 {
								acc = x
								continue
							}
							acc = fold(d, red, acc, x)
						}
						put(d, got, k, int(acc))
					}
					if !bytes.Equal(got, want) {
						t.Fatalf("%d ranks, %v, %s", n, d, red)
					}
				}
			}
		}
	}
}

// fold combines two numbers and rounds the result to the type.
func fold(d tutti.DType, red string, a, b float64) float64 {
	switch red {
	case "prod":
		a *= b
	case "min":
		a = min(a, b)
	case "max":
		a = max(a, b)
	case "and":
		return float64(int(a) & int(b))
	case "or":
		return float64(int(a) | int(b))
	case "xor":
		return float64(int(a) ^ int(b))
	default:
		a += b
	}
	one := make([]byte, 8)
	switch d {
	case tutti.Float32Type:
		return float64(float32(a))
	case tutti.Float64Type:
		return a
	}
	put(d, one, 0, int(a))
	return get(d, one, 0)
}

// TestWrongCount damages two elements: check must count them and describe the first.
func TestWrongCount(t *testing.T) {
	s := &spec{op: opNamed("alltoall"), dtype: tutti.Float32Type, reduce: none, part: 1000, elems: 3000}
	p := newPattern(s.dtype, s.reduce, 3)
	dst := make([]byte, s.bytes())
	for _, c := range s.regions(p, 1) {
		fill(dst[4*c.at:4*(c.at+c.n)], c.table, 4, c.phase)
	}
	var w Wrong
	p.check(dst, s.regions(p, 1), &w)
	if w.Count != 0 {
		t.Fatalf("%+v", w)
	}
	put(s.dtype, dst, 1700, 99)
	put(s.dtype, dst, 2999, 98)
	p.check(dst, s.regions(p, 1), &w)
	if w.Count != 2 || w.Index != 1700 || w.Got != "99" {
		t.Errorf("%+v", w)
	}
}

func TestBytesAndNumbers(t *testing.T) {
	for text, want := range map[string]int{"4": 4, "64K": 64 << 10, "1.5M": 3 << 19, "2GiB": 2 << 30, "8b": 8, "1kb": 1024} {
		if n, err := parseBytes(text); n != want || err != nil {
			t.Error(text, n, err)
		}
	}
	for _, text := range []string{"", "K", "-1", "1.3", "4X", "64I", "8iB", "1e40", "NaN", "Inf"} {
		if n, err := parseBytes(text); err == nil {
			t.Error(text, n)
		}
	}
	for n, want := range map[int]string{0: "0", 16: "16", 1000: "1000", 1024: "1K", 1536: "1536", 1 << 24: "16M"} {
		if got := byteText(n); got != want {
			t.Error(n, got)
		}
	}
	for x, want := range map[float64]float64{123456: 123460, 0.00012345678: 0.00012346, 0: 0, math.Inf(1): 0} {
		if got := digits(x, 5); math.Abs(got-want) > 1e-12 {
			t.Error(x, got)
		}
	}
}

// TestBandwidths compares with the definitions of nccl-tests.
func TestBandwidths(t *testing.T) {
	for op, want := range map[string]float64{
		"allreduce": 1.5, "broadcast": 1, "reduce": 1, "allgather": .75, "reducescatter": .75, "gather": .75, "scatter": .75,
		"alltoall": .75, "sendrecv": 1,
	} {
		r := Result{Op: op, Ranks: 4, Bytes: 2e6, P50: 1000}
		r.rates(opNamed(op))
		if r.AlgBW != 2 || r.BusBW != 2*want {
			t.Errorf("%+v", r)
		}
	}
}

func TestSweep(t *testing.T) {
	p := Plan{Ops: []string{"allgather", "barrier"}, DTypes: []string{"float32"}, Reduces: []string{"sum"}, Sizes: []int{4, 8, 64, 1024}}
	var got []int
	for _, s := range p.specs(3) {
		got = append(got, s.bytes())
	}
	if want := []int{12, 60, 1020, 0}; !slices.Equal(got, want) {
		t.Error(got)
	}
}

func TestEnvironmentWithoutSecrets(t *testing.T) {
	got := Environment([]string{"TUTTI_SECRET=x", "TUTTI_KEY=y", "HOME=/", "NCCL_DEBUG=INFO", "TUTTI_KERNEL=generic", "TUTTI_RANK=1", "GOGC=50"})
	if want := []string{"GOGC=50", "NCCL_DEBUG=INFO", "TUTTI_KERNEL=generic"}; !slices.Equal(got, want) {
		t.Error(got)
	}
}

func TestEventCodec(t *testing.T) {
	line, err := encode(Event{Point: &Point{Result: Result{Op: "allreduce", P50: 1.5}, Bins: []int64{1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	e, ok, err := decode("[0] " + string(line))
	if !ok || err != nil || e.Point == nil || e.Point.Result.P50 != 1.5 {
		t.Error(e, ok, err)
	}
	if _, ok, _ := decode("NCCL version 2.28"); ok {
		t.Error("that is no event")
	}
	if _, ok, err := decode(eventMark + "{"); !ok || err == nil {
		t.Error("a broken event")
	}
}

// TestCompare checks which changes count as beyond the noise.
func TestCompare(t *testing.T) {
	was := Result{Op: "allreduce", P50: 100, Min: 90}
	old := &SavedRun{index: map[key]*Result{was.key(): &was}}
	for _, c := range []struct {
		p50, best, noise float64
		beyond           bool
		text             string
	}{
		{100, 90, 0, false, "+0%"},
		{109, 99, 0, false, "+9%"},
		{120, 100, 0.05, true, "+20% *"},
		{120, 100, 0.30, false, "+20%"}, // the noise is larger
		{120, 91, 0, false, "+20%"},     // the best time is unchanged
		{80, 70, 0, true, "-20% *"},
		{80, 99, 0, false, "-20%"},
	} {
		got := old.Compare(&Point{Result: Result{Op: "allreduce", P50: c.p50, Min: c.best}, Noise: c.noise})
		if got.Beyond != c.beyond || got.String() != c.text {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if got := old.Compare(&Point{Result: Result{Op: "reduce", P50: 1}}); got.Known || got.String() != "new" {
		t.Error(got)
	}
}

// TestCores checks the number of cores of rank 0's host, and when its ranks count as bound.
func TestCores(t *testing.T) {
	first, second := placement{"a", []int{0, 1}}, placement{"a", []int{2, 3}} // halves of host a
	for name, c := range map[string]struct {
		seats []placement
		cores int
		bound bool
	}{
		"own":           {[]placement{first, second}, 4, true},
		"shared":        {[]placement{first, first}, 2, false},
		"overlapping":   {[]placement{first, {"a", []int{1, 2}}}, 3, false},
		"alone":         {[]placement{first}, 2, false},
		"another host":  {[]placement{first, {"b", []int{0, 1, 2}}, second}, 4, true},
		"alone on each": {[]placement{first, {"b", []int{2}}}, 2, false},
		"not known":     {[]placement{{"a", nil}, {"a", nil}}, runtime.NumCPU(), false},
	} {
		if n, bound := countCores(c.seats); n != c.cores || bound != c.bound {
			t.Errorf("%s: %d cores, bound %v", name, n, bound)
		}
	}
}

// TestTicks checks that an axis has so few labels that they do not overlap.
func TestTicks(t *testing.T) {
	for low := 0.03; low < 30; low *= 1.7 {
		for span := 1.0; span < 1e9; span *= 1.9 {
			if n := len(logScale([]float64{low, low * span}, 10, 0, 1).ticks(5)); n < 2 || n > 9 {
				t.Errorf("%d ticks from %g to %g", n, low, low*span)
			}
		}
	}
}

// TestCheckMemory checks that exactly the plans are refused that do not fit into
// memory.
func TestCheckMemory(t *testing.T) {
	for args, fits := range map[string]bool{
		"-n 2 -e 1M": true, "-n 2 -e 2M": true, "-n 2 -b 4M -e 4M": false, "-n 5 -e 1M": false, "-n 2 -e 1M --batch 4": false,
	} {
		o, err := Parse(strings.Fields(args + " -f 2"))
		if err != nil {
			t.Fatal(err)
		}
		if err := o.checkMemory(8 << 20); (err == nil) != fits || o.checkMemory(0) != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestStoppedRun checks that a long run that is stopped shows its results so far.
func TestStoppedRun(t *testing.T) {
	var out, errs bytes.Buffer
	s, err := newPrinter(&Options{Plan: Plan{Duration: time.Hour}}, &Command{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	point := func() *Point { return &Point{Result: Result{Op: "barrier", Iters: 7, P50: 1, P99: 2, Min: 1}} }
	for _, e := range []Event{{Start: &Start{}}, {Point: point()}, {Point: point()}} {
		if err := s.Handle(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(errors.New("stopped")); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, "\nbarrier ") != 1 || !strings.Contains(text, " 14 ") || strings.Contains(text, "ok:") || errs.Len() > 0 {
		t.Errorf("%s%s", text, &errs)
	}
}

func TestHeat(t *testing.T) {
	for times, want := range map[float64]string{0.5: "h1", 1.2: "h1", 1.3: "h2", 1.7: "h3", 2: "h4", 3.9: "h4", 4: "h5", 100: "h5"} {
		if got := heat(times*10, 10, 0); got != want {
			t.Errorf("%v times slower than usual is %s, not %s", times, got, want)
		}
	}
	if got := heat(100, 10, 1000); got != "h1" {
		t.Errorf("what is late by too little to be named is %s", got)
	}
}
