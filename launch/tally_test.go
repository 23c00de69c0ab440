package launch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/store"
)

// A tallyTest is a tally of three nodes with two ranks each, and its clock.
type tallyTest struct {
	tally
	now   time.Time
	procs map[int][]processReport // by node: what its launcher reports
}

const testLostTime = 4 * time.Second

func newTallyTest(min int) *tallyTest {
	t := &tallyTest{tally: tally{min: min, max: 6, lostTime: testLostTime, nodes: make([]node, 3)}, now: time.Unix(1000, 0)}
	for n := range 3 {
		t.register(int64(n+1), &application{Node: n, Ranks: 2, Who: "somebody"}, t.now)
	}
	t.start(t.now)
	t.formed = true
	t.procs = make(map[int][]processReport)
	for _, p := range t.tally.procs {
		t.procs[p.node] = append(t.procs[p.node], p.processReport)
	}
	return t
}

// beat sends a heartbeat.
func (t *tallyTest) beat(node int, registration int64, change func(*heartbeat)) bool {
	b := &heartbeat{Node: node, Registration: registration, Seq: t.nodes[node].seq + 1, Processes: slices.Clone(t.procs[node])}
	if change != nil {
		change(b)
	}
	return t.hear(b, 0, t.now)
}

// exit has a process end.
func (t *tallyTest) exit(node, i, code int) {
	p := &t.procs[node][i]
	p.Exit = &Exit{Rank: p.Rank, Replacement: p.Replacement, Node: node, Code: code, How: "somehow"}
	t.beat(node, t.nodes[node].registration, nil)
}

// pass lets time pass, in which some launchers send heartbeats.
func (t *tallyTest) pass(d time.Duration, nodes ...int) (silent []int) {
	for end := t.now.Add(d); t.now.Before(end); {
		t.now = t.now.Add(time.Second)
		for _, n := range nodes {
			t.beat(n, t.nodes[n].registration, nil)
		}
		for _, n := range t.silent(t.now) {
			t.giveUp(n, "silence", t.now)
			silent = append(silent, n)
		}
	}
	return silent
}

func (t *tallyTest) decideOn() verdict {
	return t.verdict(t.now, func(name string) bool { return strings.HasSuffix(name, "suffered") })
}

func (t *tallyTest) want(test *testing.T, whole, running int) {
	test.Helper()
	if w, r := t.count(); w != whole || r != running {
		test.Errorf("%d ranks, of which %d run; want %d and %d", w, r, whole, running)
	}
}

// TestTallySilence gives up a launcher that is silent, and then its heartbeats count
// for nothing: neither the ends of its ranks, nor that it is there again.
func TestTallySilence(t *testing.T) {
	y := newTallyTest(4)
	if list := y.pass(testLostTime, 0, 1, 2); list != nil {
		t.Fatal("given up:", list)
	}
	y.want(t, 6, 6)
	if list := y.pass(2*testLostTime, 0, 1); !slices.Equal(list, []int{2}) {
		t.Fatal("given up:", list)
	}
	y.want(t, 4, 4)
	if v := y.decideOn(); v.failed != nil || v.finished {
		t.Errorf("%+v", v)
	}
	before := len(y.lost)
	for _, change := range []func(*heartbeat){
		nil,
		func(b *heartbeat) { b.Leaving = "it leaves" },
		func(b *heartbeat) { b.Fatal = &Exit{Rank: -1, Code: 1, How: "it ends the job"} },
		func(b *heartbeat) { b.Processes[0].Exit = &Exit{Rank: 4, Code: 1} },
		func(b *heartbeat) { b.Processes[0].Exit = &Exit{Rank: 4} },
	} {
		if y.beat(2, 3, change) {
			t.Error("the launcher that was given up is heard")
		}
	}
	if v := y.decideOn(); v.failed != nil || v.finished || len(y.lost) != before || y.over {
		t.Errorf("the launcher that was given up has changed the job: %+v, %+v", v, y.lost)
	}
	y.want(t, 4, 4)
	if got, want := y.lost[0].exit().How, "node 2 is lost: silence"; got != want || !slices.Equal(y.lost[0].Ranks, []int{4, 5}) {
		t.Errorf("%q, %+v", got, y.lost[0])
	}
}

// TestTallyFatal lets only node 0's launcher end the job.
func TestTallyFatal(t *testing.T) {
	y := newTallyTest(1)
	fatal := func(b *heartbeat) { b.Fatal = &Exit{Rank: -1, Code: 143, How: "stopped"} }
	if y.beat(1, 2, fatal); y.decideOn().failed != nil {
		t.Error("node 1 has ended the job")
	}
	if y.beat(0, 1, fatal); y.decideOn().failed == nil || y.decideOn().failed.Code != 143 {
		t.Errorf("%+v", y.decideOn())
	}
}

// TestTallyOwnPause does not give up anybody because node 0 itself was stopped.
func TestTallyOwnPause(t *testing.T) {
	y := newTallyTest(4)
	y.now = y.now.Add(time.Hour)
	if list := y.silent(y.now); list != nil {
		t.Error("given up:", list)
	}
	if list := y.pass(2*testLostTime, 0, 1); !slices.Equal(list, []int{2}) {
		t.Error("given up:", list)
	}
}

// TestTallyTooFew ends the job with the loss whose place has been empty for longest.
func TestTallyTooFew(t *testing.T) {
	y := newTallyTest(4)
	y.exit(1, 0, 137) // rank 2
	y.now = y.now.Add(time.Second)
	y.exit(1, 1, 3) // rank 3
	if v := y.decideOn(); v.failed != nil {
		t.Fatalf("%+v", v)
	}
	// Rank 2 is replaced, and the replacement let in.
	y.procs[1] = append(y.procs[1], processReport{Name: "2.1", Rank: 2, Replacement: 1})
	y.beat(1, 2, nil)
	y.want(t, 4, 4)
	y.decide([]string{"0", "1", "4", "5", "2.1"})
	y.want(t, 5, 5)
	y.now = y.now.Add(time.Second)
	y.exit(0, 1, 1)
	y.want(t, 4, 4)
	y.pass(2*testLostTime, 0, 1)
	v := y.decideOn()
	if v.failed == nil || v.failed.Rank != 3 || v.failed.Code != 3 || v.why != "2 of 6 ranks are left, and 4 are needed" {
		t.Errorf("%+v, %+v", v, v.failed)
	}
}

// TestTallyBlame waits for the end of the rank because of which another has failed.
func TestTallyBlame(t *testing.T) {
	y := newTallyTest(6)
	suffered := func(name string) bool { return name == "4" }
	y.exit(2, 0, 1)
	if v := y.verdict(y.now, suffered); v.failed != nil {
		t.Errorf("%+v", v.failed)
	}
	y.exit(1, 0, 137)
	if v := y.verdict(y.now, suffered); v.failed == nil || v.failed.Rank != 2 {
		t.Errorf("%+v", v.failed)
	}
	y = newTallyTest(6)
	y.exit(2, 0, 1)
	if v := y.verdict(y.now.Add(2*blameTime), suffered); v.failed == nil || v.failed.Rank != 4 {
		t.Errorf("%+v", v.failed)
	}
}

// TestTallyEnds finishes when no rank runs, and loses a job whose ranks have not joined.
func TestTallyEnds(t *testing.T) {
	y := newTallyTest(2)
	for n := range 3 {
		y.exit(n, 0, 0)
	}
	if v := y.decideOn(); v.finished || !y.over {
		t.Errorf("%+v, %v", v, y.over)
	}
	for n := range 3 {
		y.exit(n, 1, 0)
	}
	if v := y.decideOn(); !v.finished || v.failed != nil {
		t.Errorf("%+v", v)
	}
	y = newTallyTest(2)
	y.formed = false
	y.exit(2, 1, 3)
	if v := y.decideOn(); v.failed == nil || v.failed.Rank != 5 || v.why != "" {
		t.Errorf("%+v", v)
	}
}

// TestTallyBehind does not count a rank without which the others have gone on, and takes
// it for lost when it is killed.
func TestTallyBehind(t *testing.T) {
	y := newTallyTest(6)
	y.decide([]string{"0", "1", "2", "3", "4"})
	y.want(t, 5, 5)
	if v := y.decideOn(); v.failed != nil {
		t.Errorf("%+v", v)
	}
	y.exit(2, 1, 137)
	if v := y.decideOn(); v.failed == nil || v.failed.Rank != 5 {
		t.Errorf("%+v", v)
	}
}

// TestTallyAdmit lets a launcher take a place only when the one before has left or was
// given up, and the ranks have gone on without its processes.
func TestTallyAdmit(t *testing.T) {
	y := newTallyTest(2)
	a := &application{Node: 2, Ranks: 2, Who: "another", seq: y.nodes[2].seq}
	admit := func(want bool, says string) {
		t.Helper()
		if ok, refusal := y.admit(a, true, true); ok != want || !strings.Contains(refusal, says) || says == "" && refusal != "" {
			t.Errorf("%v, %q; want %v, %q", ok, refusal, want, says)
		}
	}
	admit(false, "")
	y.pass(2*testLostTime, 0, 1)
	admit(false, "") // ranks 4 and 5 are members
	y.decide([]string{"0", "1", "2", "3", "5"})
	admit(false, "")
	y.decide([]string{"0", "1", "2", "3"})
	admit(true, "")
	y.register(9, a, y.now)
	if firsts := y.newcomers(2); !slices.Equal(firsts, []int{1, 1}) {
		t.Error(firsts)
	}
	y.want(t, 4, 4)
	y.decide([]string{"0", "1", "2", "3", "5.1-9", "4.1-9"})
	y.want(t, 6, 6)
	if l := y.lost[0]; l.By != "another" || !slices.Equal(l.newcomers, []string{"4.1-9", "5.1-9"}) {
		t.Errorf("%+v", l)
	}
	a.Ranks = 1
	admit(false, "node 2 of this job has 2 ranks, not 1")
	a.Ranks, a.seq = 2, y.nodes[2].seq
	y.procs[2] = nil
	y.beat(2, 9, nil)
	admit(false, "")
	y.beat(2, 9, nil)
	admit(false, "node 2 is here already: another")
	y.over = true
	admit(false, "the job is ending")
}

// TestTallyLeaving lets a host leave: its ranks are lost at once, and their ends are no
// losses of their own.
func TestTallyLeaving(t *testing.T) {
	y := newTallyTest(4)
	y.beat(2, 3, func(b *heartbeat) { b.Leaving = "stopped by SIGTERM" })
	y.want(t, 4, 4)
	y.exit(2, 0, 143)
	y.beat(2, 3, func(b *heartbeat) { b.Left = true })
	if len(y.lost) != 1 || y.lost[0].How != "stopped by SIGTERM" || y.nodes[2].registration != 0 {
		t.Errorf("%+v", y.lost)
	}
	if v := y.decideOn(); v.failed != nil {
		t.Errorf("%+v", v)
	}
	text := y.lost[0].String()
	if want := "node 2 was lost after 0s: stopped by SIGTERM, and with it ranks 4 and 5; no host has taken its place"; text != want {
		t.Error(text)
	}
}

// A deafStore takes nothing and answers nothing.
type deafStore struct{ store.Store }

func (d *deafStore) Push(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestRegistrationDeaf has a store that does not answer: update, which the launcher's
// main loop calls, does not wait for it, and node 0 is lost after LostTime.
func TestRegistrationDeaf(t *testing.T) {
	h := &host{cfg: &Config{LostTime: 500 * time.Millisecond}, own: new(deafStore), gone: make(chan Exit, 1)}
	r := &registration{h: h, number: 1, every: time.Millisecond, changed: make(chan struct{}, 1)}
	go r.beat(t.Context())
	began := time.Now()
	for i := range 1000 {
		r.update(func(b *heartbeat) { b.Epoch = i })
	}
	if took := time.Since(began); took > h.cfg.LostTime/2 {
		t.Errorf("1000 updates took %v", took)
	}
	select {
	case e := <-h.gone:
		if !strings.HasPrefix(e.How, "node 0 is lost: ") || time.Since(began) < h.cfg.LostTime/2 {
			t.Errorf("after %v: %+v", time.Since(began), e)
		}
	case <-time.After(time.Minute):
		t.Error("nobody notices")
	}
}

// TestCoordinatorSum refuses to begin with another number of ranks than --elastic says.
func TestCoordinatorSum(t *testing.T) {
	memory := store.NewMemory(store.Limits{})
	var failed [2]error
	var all sync.WaitGroup
	hosts := make([]*host, 2)
	for n := range hosts {
		cfg := &Config{Nodes: 2, Node: n, Ranks: 1 + n, Min: 2, Max: 4, LostTime: time.Minute, Logger: slog.New(slog.DiscardHandler)}
		hosts[n] = &host{cfg: cfg, all: memory, own: store.Prefix(memory, "launch"), gone: make(chan Exit, 1), quiet: func() {}}
		all.Go(func() { failed[n] = hosts[n].coordinate(t.Context()) })
	}
	all.Wait()
	for n, err := range failed {
		hosts[n].quiet()
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "the hosts have 3 ranks (1 + 2), but --elastic 2:4 says that the whole job has 4") {
			t.Errorf("node %d: %v", n, err)
		}
	}
}
