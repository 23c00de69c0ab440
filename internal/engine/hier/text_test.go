package hier

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
)

// shown is how much of a name inner engines show.
const shown = 31

// A label says what call it was made of, also when its end is missing.
func TestLabel(t *testing.T) {
	for _, c := range []struct {
		sig        engine.Sig
		name, text string
	}{
		{engine.Sig{Verb: engine.Barrier}, "", "Barrier"},
		{engine.Sig{Verb: engine.AllGather, Type: kernel.Uint8, Uneven: true}, "", "AllGatherV(uint8)"},
		{
			engine.Sig{Verb: engine.Reduce, Type: kernel.BFloat16, Red: engine.Max, Root: 4095, Count: 1 << 40},
			"",
			"Reduce(1099511627776 x bfloat16, max, root 4095)",
		},
		{
			engine.Sig{Verb: engine.AllReduce, Type: kernel.Float32, Red: engine.Sum, Count: 20000},
			"a: b:c",
			`AllReduce(20000 x float32, sum, name "a: b:c")`,
		},
		{
			engine.Sig{Verb: engine.Broadcast, Type: kernel.Int64, Count: 7},
			"the bias of the seventh layer",
			`Broadcast(7 x int64, root 0, name "the bias of the seventh")`,
		},
	} {
		l := newLabel(c.sig, c.name)
		if text, ok := readLabel(l[:min(len(l), shown)]); !ok || text != c.text {
			t.Errorf("%q: %s, want %s", l, text, c.text)
		}
	}
	for _, other := range []string{"", "5+7", "ab:c", "!!!!5:0:x", "1111:0:", "11115:?:"} {
		if text, ok := readLabel(other); ok {
			t.Errorf("%q is no label, and reads %s", other, text)
		}
	}
}

func TestReword(t *testing.T) {
	ranks := make([]int, 20)
	for i := range ranks {
		ranks[i] = 3*i + 1
	}
	label := newLabel(engine.Sig{Verb: engine.AllReduce, Type: kernel.Float32, Red: engine.Sum, Count: 5}, `a "b" rank 1`)
	step := engine.Sig{Verb: engine.Reduce, Type: kernel.Float32, Red: engine.Sum, Count: 5, Name: 1}.Text(label)
	call := `AllReduce(5 x float32, sum, name "a \"b\" rank 1")`
	for _, c := range []struct {
		text, want string
		named      []int
	}{
		{"all ranks have arrived", "all ranks have arrived", nil},
		{"rank 0 called " + step + ", rank 2 called Barrier; x", "rank 1 called " + call + ", rank 7 called Barrier; x", []int{1, 7}},
		{"ranks 0 and 2 have not arrived (rank 0 last", "ranks 1 and 7 have not arrived (rank 1 last", []int{1, 7, 1}},
		{"nothing of ranks 1, 2 and 3", "nothing of ranks 4, 7 and 10", []int{4, 7, 10}},
		{"ranks 1, 2, 3 and 5 more", "ranks 4, 7 and 10 and 5 more", []int{4, 7, 10}},
		{`Batch(2 operations, sum, name "5+7")`, `Batch(2 operations, sum, name "5+7")`, nil},
	} {
		if got, named := reword(c.text, ranks); got != c.want || !slices.Equal(named, c.named) {
			t.Errorf("%s\nbecame %s, %v\nwant   %s, %v", c.text, got, named, c.want, c.named)
		}
	}
}

// Whoever waits for a host hears which ranks that may be about.
func TestBehind(t *testing.T) {
	e := New(Options{Rank: 2, Hosts: []int{0, 0, 2, 2, 4}})
	for _, c := range []struct {
		rank  int
		named []int
		p     *part
		want  string
	}{
		{2, []int{0}, &e.across, "others there (rank 1)"},
		{2, []int{4}, &e.across, ""},
		{2, []int{3}, &e.inside, "other hosts (ranks 0, 1 and 4) have not been asked"},
		{3, []int{2}, &e.inside, "rank 2 may be waiting for other hosts (ranks 0, 1 and 4)"},
	} {
		if got := e.behind(c.rank, c.named, c.p); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("rank %d waits for %v: %q, want %q", c.rank, c.named, got, c.want)
		}
	}
}

// A context that ends between two steps ends, for an inner group, before it has
// begun; the rank was in the middle all the same.
func TestBetweenSteps(t *testing.T) {
	e := New(Options{Rank: 1, Hosts: []int{0, 0, 0}})
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("rank 7 said so"))
	const what = "the context was cancelled (rank 7 said so): "
	for _, c := range []struct {
		rank  int
		begun bool
		ctx   context.Context
		want  string
	}{
		{1, false, over, what + engine.NotBegun},
		{1, true, over, what + "it was about to wait for ranks 0 and 2"},
		{2, false, t.Context(), what + "it was about to wait for ranks 0 and 1"},
	} {
		e.begun = c.begun
		f := &engine.Failure{Kind: engine.ErrAborted, Rank: c.rank, Reason: what + engine.NotBegun}
		if got := e.translate(c.ctx, f, &e.inside).Reason; got != c.want {
			t.Errorf("rank %d: %q, want %q", c.rank, got, c.want)
		}
	}
}

// TestLostHost: a host that does not answer has lost all its ranks, a process
// that has ended is one.
func TestLostHost(t *testing.T) {
	e := &Engine{layout: newLayout(0, []int{0, 1, 0, 1, 4})}
	p := &part{ranks: []int{0, 1, 4}} // the first of each host
	for _, c := range []struct {
		why  error
		lost []int
	}{
		{&transport.LostError{Peer: 1, Err: syscall.ETIMEDOUT}, []int{1, 3}},
		{&transport.LostError{Peer: 1, Err: syscall.ECONNRESET}, []int{1}},
	} {
		f := e.translate(t.Context(), &engine.Failure{Kind: engine.ErrRankLost, Lost: []int{1}, Err: c.why}, p)
		if !slices.Equal(f.Lost, c.lost) {
			t.Errorf("%v: %v are lost, want %v", c.why, f.Lost, c.lost)
		}
	}
}
