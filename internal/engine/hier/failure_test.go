package hier

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
)

// TestTranslateMismatch checks that a failure of an inner group shows the user's calls and this
// group's rank numbers.
func TestTranslateMismatch(t *testing.T) {
	e := New(Options{Rank: 1, Hosts: []int{0, 1, 0, 1}})
	e.op, e.seq = "AllReduce", 7
	user := &engine.Call{Verb: engine.AllReduce, ReduceOp: engine.Sum, Name: `a "b" rank 1`}
	user.Src = engine.Mem{N: 5, Type: kernel.Float32}
	step := engine.Call{Verb: engine.Reduce, ReduceOp: engine.Sum, Of: user, Src: user.Src}
	f := e.translate(&engine.Failure{
		Kind: engine.ErrMismatch, Op: "Reduce", Seq: 1, Rank: 1,
		Facts: engine.Facts{Event: engine.CallsDiffer, Sides: []engine.Side{
			{Rank: 1, Call: step.Info()}, {Rank: 0, Call: engine.CallInfo{Fingerprint: engine.Fingerprint{Verb: engine.Barrier}}},
		}},
	}, &e.localGroup)
	const want = `AllReduce #7 on rank 3: ranks disagree: rank 3 called AllReduce(5 x float32, sum, name "a \"b\" rank 1"), rank 1 called Barrier; ` +
		"every rank must make the same calls in the same order"
	if f.Error() != want {
		t.Errorf("%v\nwant %s", f, want)
	}
}

// TestAddRelay checks that the failure of a rank that waits for a host names the ranks behind
// that host.
func TestAddRelay(t *testing.T) {
	e := New(Options{Rank: 2, Hosts: []int{0, 0, 2, 2, 4}})
	for _, c := range []struct {
		rank  int
		named []int
		p     *subgroup
		want  string
	}{
		{2, []int{0}, &e.leaderGroup, "others there (rank 1)"},
		{2, []int{4}, &e.leaderGroup, ""},
		{2, []int{3}, &e.localGroup, "other hosts (ranks 0, 1 and 4) have not been asked"},
		{3, []int{2}, &e.localGroup, "rank 2 may be waiting for other hosts (ranks 0, 1 and 4)"},
	} {
		f := &engine.Failure{Kind: engine.ErrTimeout, Rank: c.rank, Facts: engine.Facts{
			Event: engine.LimitPassed, Wait: engine.Wait{Phase: engine.Exchanging, Ranks: c.named},
		}}
		e.addRelay(f, c.p)
		if got := f.Reason(); !strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, ";") {
			t.Errorf("rank %d waits for %v: %q, want %q", c.rank, c.named, got, c.want)
		}
	}
}

// TestBetweenSteps checks that a context that ends between two steps, before the next step has
// begun, is not reported as ending before the operation began.
func TestBetweenSteps(t *testing.T) {
	e := New(Options{Rank: 1, Hosts: []int{0, 0, 0}})
	const what = "the context was cancelled (rank 7 said so): "
	for _, c := range []struct {
		rank  int
		begun bool
		want  string
	}{
		{1, false, what + "before the operation began"},
		{1, true, what + "it was about to wait for ranks 0 and 2"},
		{2, false, what + "it was about to wait for ranks 0 and 1"},
	} {
		e.begun = c.begun
		f := &engine.Failure{Kind: engine.ErrAborted, Rank: c.rank, Facts: engine.Facts{
			Event: engine.Cancelled, Text: "rank 7 said so", Wait: engine.Wait{Phase: engine.NotBegun},
		}}
		if got := e.translate(f, &e.localGroup).Reason(); got != c.want {
			t.Errorf("rank %d: %q, want %q", c.rank, got, c.want)
		}
	}
}

// TestLostHost checks that all ranks of a host are lost if it does not answer, and one rank is
// lost if its process has exited.
func TestLostHost(t *testing.T) {
	e := &Engine{layout: newLayout(0, []int{0, 1, 0, 1, 4})}
	p := &subgroup{ranks: []int{0, 1, 4}} // the leaders
	for _, c := range []struct {
		why  error
		lost []int
	}{
		{&transport.LostError{Peer: 1, Err: syscall.ETIMEDOUT}, []int{1, 3}},
		{&transport.LostError{Peer: 1, Err: syscall.ECONNRESET}, []int{1}},
	} {
		f := e.translate(&engine.Failure{Kind: engine.ErrRankLost, Lost: []int{1}, Err: c.why}, p)
		if !slices.Equal(f.Lost, c.lost) {
			t.Errorf("%v: %v are lost, want %v", c.why, f.Lost, c.lost)
		}
	}
}
