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

	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// A jobStateTest is a jobState of three nodes with two ranks each, and its clock.
type jobStateTest struct {
	jobState
	now   time.Time
	procs map[int][]processReport // by node: reported by its launcher
}

const testLostTime = 4 * time.Second

func newJobStateTest(min int) *jobStateTest {
	t := &jobStateTest{jobState: jobState{min: min, max: 6, lostTime: testLostTime, nodes: make([]node, 3)}, now: time.Unix(1000, 0)}
	for n := range 3 {
		t.register(int64(n+1), &application{Node: n, Ranks: 2, Who: "somebody"}, t.now)
	}
	t.start(t.now)
	t.formed = true
	t.procs = make(map[int][]processReport)
	for _, p := range t.jobState.procs {
		t.procs[p.node] = append(t.procs[p.node], p.processReport)
	}
	return t
}

// beat sends a heartbeat.
func (t *jobStateTest) beat(node int, registration int64, change func(*heartbeat)) bool {
	b := &heartbeat{Node: node, Registration: registration, Seq: t.nodes[node].seq + 1, Processes: slices.Clone(t.procs[node])}
	if change != nil {
		change(b)
	}
	return t.handleHeartbeat(b, 0, t.now)
}

// exit ends a process.
func (t *jobStateTest) exit(node, i, code int) {
	p := &t.procs[node][i]
	p.Exit = &Exit{Rank: p.Rank, Replacement: p.Replacement, Node: node, Code: code, How: "somehow"}
	t.beat(node, t.nodes[node].registration, nil)
}

// advance advances the clock. The launchers of the given nodes send heartbeats.
func (t *jobStateTest) advance(d time.Duration, nodes ...int) (silent []int) {
	for end := t.now.Add(d); t.now.Before(end); {
		t.now = t.now.Add(time.Second)
		for _, n := range nodes {
			t.beat(n, t.nodes[n].registration, nil)
		}
		for _, n := range t.silent(t.now) {
			t.declareLost(n, "silence", t.now)
			silent = append(silent, n)
		}
	}
	return silent
}

func (t *jobStateTest) decide() verdict {
	return t.verdict(t.now, func(name string) bool { return strings.HasSuffix(name, "suffered") })
}

func (t *jobStateTest) want(test *testing.T, whole, running int) {
	test.Helper()
	if w, r := t.count(); w != whole || r != running {
		test.Errorf("%d ranks, of which %d run; want %d and %d", w, r, whole, running)
	}
}

// TestJobStateSilence declares a silent launcher lost. Its later heartbeats have no
// effect: they neither report exits of its ranks nor bring it back.
func TestJobStateSilence(t *testing.T) {
	y := newJobStateTest(4)
	if list := y.advance(testLostTime, 0, 1, 2); list != nil {
		t.Fatal("declared lost:", list)
	}
	y.want(t, 6, 6)
	if list := y.advance(2*testLostTime, 0, 1); !slices.Equal(list, []int{2}) {
		t.Fatal("declared lost:", list)
	}
	y.want(t, 4, 4)
	if v := y.decide(); v.failed != nil || v.finished {
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
			t.Error("the launcher that was declared lost is heard")
		}
	}
	if v := y.decide(); v.failed != nil || v.finished || len(y.lost) != before || y.succeeded {
		t.Errorf("the launcher that was declared lost has changed the job: %+v, %+v", v, y.lost)
	}
	y.want(t, 4, 4)
	if got, want := y.lost[0].exit().How, "node 2 is lost: silence"; got != want || !slices.Equal(y.lost[0].Ranks, []int{4, 5}) {
		t.Errorf("%q, %+v", got, y.lost[0])
	}
}

// TestJobStateFatal checks that only node 0's launcher can end the job.
func TestJobStateFatal(t *testing.T) {
	y := newJobStateTest(1)
	fatal := func(b *heartbeat) { b.Fatal = &Exit{Rank: -1, Code: 143, How: "stopped"} }
	if y.beat(1, 2, fatal); y.decide().failed != nil {
		t.Error("node 1 has ended the job")
	}
	if y.beat(0, 1, fatal); y.decide().failed == nil || y.decide().failed.Code != 143 {
		t.Errorf("%+v", y.decide())
	}
}

// TestJobStateOwnPause checks that no launcher is lost because node 0 itself was
// stopped.
func TestJobStateOwnPause(t *testing.T) {
	y := newJobStateTest(4)
	y.now = y.now.Add(time.Hour)
	if list := y.silent(y.now); list != nil {
		t.Error("declared lost:", list)
	}
	if list := y.advance(2*testLostTime, 0, 1); !slices.Equal(list, []int{2}) {
		t.Error("declared lost:", list)
	}
}

// TestJobStateTooFew fails the job with the loss of the rank that has been empty for
// longest.
func TestJobStateTooFew(t *testing.T) {
	y := newJobStateTest(4)
	y.exit(1, 0, 137) // rank 2
	y.now = y.now.Add(time.Second)
	y.exit(1, 1, 3) // rank 3
	if v := y.decide(); v.failed != nil {
		t.Fatalf("%+v", v)
	}
	// Rank 2 is replaced, and the replacement is admitted.
	y.procs[1] = append(y.procs[1], processReport{Name: "2.1", Rank: 2, Replacement: 1})
	y.beat(1, 2, nil)
	y.want(t, 4, 4)
	y.applyDecision([]string{"0", "1", "4", "5", "2.1"})
	y.want(t, 5, 5)
	y.now = y.now.Add(time.Second)
	y.exit(0, 1, 1)
	y.want(t, 4, 4)
	y.advance(2*testLostTime, 0, 1)
	v := y.decide()
	if v.failed == nil || v.failed.Rank != 3 || v.failed.Code != 3 || v.why != "2 of 6 ranks are left, and 4 are needed" {
		t.Errorf("%+v, %+v", v, v.failed)
	}
}

// TestJobStateBlame waits for the exit of the rank that another failed rank blames. After blameTime
// the failed rank itself is the cause.
func TestJobStateBlame(t *testing.T) {
	y := newJobStateTest(6)
	suffered := func(name string) bool { return name == "4" }
	y.exit(2, 0, 1)
	if v := y.verdict(y.now, suffered); v.failed != nil {
		t.Errorf("%+v", v.failed)
	}
	y.exit(1, 0, 137)
	if v := y.verdict(y.now, suffered); v.failed == nil || v.failed.Rank != 2 {
		t.Errorf("%+v", v.failed)
	}
	y = newJobStateTest(6)
	y.exit(2, 0, 1)
	if v := y.verdict(y.now.Add(2*blameTime), suffered); v.failed == nil || v.failed.Rank != 4 {
		t.Errorf("%+v", v.failed)
	}
}

// TestJobStateEnds finishes when no rank runs, and fails a job whose ranks have not
// joined.
func TestJobStateEnds(t *testing.T) {
	y := newJobStateTest(2)
	for n := range 3 {
		y.exit(n, 0, 0)
	}
	if v := y.decide(); v.finished || !y.succeeded {
		t.Errorf("%+v, %v", v, y.succeeded)
	}
	for n := range 3 {
		y.exit(n, 1, 0)
	}
	if v := y.decide(); !v.finished || v.failed != nil {
		t.Errorf("%+v", v)
	}
	y = newJobStateTest(2)
	y.formed = false
	y.exit(2, 1, 3)
	if v := y.decide(); v.failed == nil || v.failed.Rank != 5 || v.why != "" {
		t.Errorf("%+v", v)
	}
}

// TestJobStateExcluded does not count an excluded rank, and counts it as lost when it
// is killed.
func TestJobStateExcluded(t *testing.T) {
	y := newJobStateTest(6)
	y.applyDecision([]string{"0", "1", "2", "3", "4"})
	y.want(t, 5, 5)
	if v := y.decide(); v.failed != nil {
		t.Errorf("%+v", v)
	}
	y.exit(2, 1, 137)
	if v := y.decide(); v.failed == nil || v.failed.Rank != 5 {
		t.Errorf("%+v", v)
	}
}

// TestJobStateAdmit admits a launcher only when its predecessor has left or is lost,
// and the ranks have continued without its processes.
func TestJobStateAdmit(t *testing.T) {
	y := newJobStateTest(2)
	a := &application{Node: 2, Ranks: 2, Who: "another", seq: y.nodes[2].seq}
	admit := func(want bool, says string) {
		t.Helper()
		if ok, refusal := y.admit(a, true, true); ok != want || !strings.Contains(refusal, says) || says == "" && refusal != "" {
			t.Errorf("%v, %q; want %v, %q", ok, refusal, want, says)
		}
	}
	admit(false, "")
	y.advance(2*testLostTime, 0, 1)
	admit(false, "") // ranks 4 and 5 are still members
	y.applyDecision([]string{"0", "1", "2", "3", "5"})
	admit(false, "")
	y.applyDecision([]string{"0", "1", "2", "3"})
	admit(true, "")
	y.register(9, a, y.now)
	if firsts := y.addReplacements(2); !slices.Equal(firsts, []int{1, 1}) {
		t.Error(firsts)
	}
	y.want(t, 4, 4)
	y.applyDecision([]string{"0", "1", "2", "3", "5.1-9", "4.1-9"})
	y.want(t, 6, 6)
	if l := y.lost[0]; l.By != "another" || !slices.Equal(l.lateNames, []string{"4.1-9", "5.1-9"}) {
		t.Errorf("%+v", l)
	}
	a.Ranks = 1
	admit(false, "node 2 of this job has 2 ranks, not 1")
	a.Ranks, a.seq = 2, y.nodes[2].seq
	y.procs[2] = nil
	y.beat(2, 9, nil)
	admit(false, "")
	y.beat(2, 9, nil)
	admit(false, "node 2 is already in the job: another")
	y.succeeded = true
	admit(false, "the job is ending")
}

// TestJobStateLeaving has a host leave: its ranks are lost at once, and their exits are
// not losses of their own.
func TestJobStateLeaving(t *testing.T) {
	y := newJobStateTest(4)
	y.beat(2, 3, func(b *heartbeat) { b.Leaving = "stopped by SIGTERM" })
	y.want(t, 4, 4)
	y.exit(2, 0, 143)
	y.beat(2, 3, func(b *heartbeat) { b.Left = true })
	if len(y.lost) != 1 || y.lost[0].How != "stopped by SIGTERM" || y.nodes[2].registration != 0 {
		t.Errorf("%+v", y.lost)
	}
	if v := y.decide(); v.failed != nil {
		t.Errorf("%+v", v)
	}
	text := y.lost[0].String()
	if want := "node 2 was lost after 0s: stopped by SIGTERM, and with it ranks 4 and 5; no host replaced it"; text != want {
		t.Error(text)
	}
}

// An unresponsiveStore accepts nothing and answers nothing.
type unresponsiveStore struct{ store.Store }

func (d *unresponsiveStore) Push(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestRegistrationUnresponsive has a store that does not answer. update, which the
// launcher's main loop calls, does not wait for it, and node 0 is lost after LostTime.
func TestRegistrationUnresponsive(t *testing.T) {
	h := &host{cfg: &Config{LostTime: 500 * time.Millisecond}, own: new(unresponsiveStore), lost: make(chan Exit, 1)}
	r := &registration{h: h, number: 1, interval: time.Millisecond, changed: make(chan struct{}, 1)}
	go r.sendHeartbeats(t.Context())
	began := time.Now()
	for i := range 1000 {
		r.update(func(b *heartbeat) { b.Attempt = i })
	}
	if took := time.Since(began); took > h.cfg.LostTime/2 {
		t.Errorf("1000 updates took %v", took)
	}
	select {
	case e := <-h.lost:
		if !strings.HasPrefix(e.How, "node 0 is lost: ") || time.Since(began) < h.cfg.LostTime/2 {
			t.Errorf("after %v: %+v", time.Since(began), e)
		}
	case <-time.After(time.Minute):
		t.Error("nobody notices")
	}
}

// TestCoordinatorSum refuses to begin with a number of ranks that differs from
// --elastic.
func TestCoordinatorSum(t *testing.T) {
	memory := store.NewMemory(store.Limits{})
	var failed [2]error
	var all sync.WaitGroup
	hosts := make([]*host, 2)
	for n := range hosts {
		cfg := &Config{Nodes: 2, Node: n, Ranks: 1 + n, Min: 2, Max: 4, LostTime: time.Minute, Logger: slog.New(slog.DiscardHandler)}
		hosts[n] = &host{cfg: cfg, all: memory, own: store.Prefix(memory, jobstore.Launchers), lost: make(chan Exit, 1), stop: func() {}}
		all.Go(func() { failed[n] = hosts[n].coordinate(t.Context()) })
	}
	all.Wait()
	for n, err := range failed {
		hosts[n].stop()
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "the hosts have 3 ranks (1 + 2), but --elastic 2:4 says that the whole job has 4") {
			t.Errorf("node %d: %v", n, err)
		}
	}
}
