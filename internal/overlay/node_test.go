package overlay

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

var start = time.Unix(1000, 0)

// newNode returns a Node that can dial, in a job of one host.
func newNode(rank, size int) *Node {
	n := New(rank, size, testHostTimeout)
	n.Begin()
	n.Reach(start)
	n.Take()
	return n
}

// do returns the actions of one kind.
func do(n *Node, kind ActionKind) (list []Action) {
	return slices.DeleteFunc(n.Take(), func(a Action) bool { return a.Do != kind })
}

// TestMaxCauses checks that a rank keeps the newest causes and sends only these on a new link.
func TestMaxCauses(t *testing.T) {
	n := newNode(1, 4)
	const more = 3
	for i := range maxCauses + more {
		n.Receive(start, 0, &Message{Kind: Failed, Cause: &Cause{Group: fmt.Sprint(i)}})
	}
	if len(n.causes) != maxCauses || len(n.facts) != maxCauses {
		t.Errorf("%d causes and %d facts, not %d", len(n.causes), len(n.facts), maxCauses)
	}
	if first, last := n.facts[0].Cause.Group, n.facts[maxCauses-1].Cause.Group; first != fmt.Sprint(more) || last != fmt.Sprint(maxCauses+more-1) {
		t.Errorf("the causes of groups %s to %s are kept", first, last)
	}
	if n.causes["0"] != nil || n.causes[fmt.Sprint(more)] == nil {
		t.Error("facts and causes differ")
	}
}

// TestCausesDisplaceNoLoss checks that a loss is kept however many causes follow.
func TestCausesDisplaceNoLoss(t *testing.T) {
	n := newNode(1, 4)
	n.Receive(start, 0, &Message{Kind: Lost, Ranks: []int{3}})
	for i := range maxCauses + 1 {
		n.Receive(start, 0, &Message{Kind: Failed, Cause: &Cause{Group: fmt.Sprint(i)}})
	}
	if n.facts[0].Kind != Lost || len(n.facts) != maxCauses+1 {
		t.Errorf("the first of %d facts is %v", len(n.facts), n.facts[0].Kind)
	}
}

// TestMaxPositions checks that a rank keeps the newest positions and forwards each once.
func TestMaxPositions(t *testing.T) {
	n := newNode(1, 4)
	for i := range maxPositions + 2 {
		where := fmt.Sprint("operation ", i)
		n.Receive(start, 0, &Message{Kind: Position, Rank: 2, Number: uint64(i + 1), Group: "g", Members: []int{1, 2}, Where: []byte(where)})
	}
	if len(n.positions) != maxPositions || string(n.positions[0].Where) != "operation 2" {
		t.Errorf("%d positions, of which the first is %s", len(n.positions), n.positions[0].Where)
	}
	if heard := do(n, NotifyPosition); len(heard) != maxPositions+2 {
		t.Errorf("%d positions were heard", len(heard))
	}
	n.Receive(start, 0, &Message{Kind: Position, Rank: 2, Number: 5, Group: "g", Members: []int{1, 2}, Where: []byte("late")})
	n.Receive(start, 0, &Message{Kind: Position, Rank: 3, Number: 1, Group: "g", Members: []int{1, 2}, Where: n.positions[0].Where})
	if heard := do(n, NotifyPosition); len(heard) != 0 {
		t.Errorf("an old position, or that of another rank, was heard again: %v", heard)
	}
}

// TestSilentHost checks that all ranks of a silent host are lost at once, but no rank of this
// rank's own host.
func TestSilentHost(t *testing.T) {
	for _, c := range []struct {
		rank int
		lost []int
	}{{4, []int{4, 5}}, {2, []int{2, 3}}, {1, []int{1}}} {
		n := New(0, 6, testHostTimeout)
		n.Hosts([]int{0, 0, 2, 2, 4, 4})
		n.Begin()
		n.Reach(start)
		n.Take()
		n.LinkDown(start, c.rank, false, Silent)
		list := do(n, Lose)
		if len(list) != 1 || !slices.Equal(list[0].Ranks, c.lost) || list[0].Reason != Silent {
			t.Errorf("rank %d is silent: %v, not the loss of %v", c.rank, list, c.lost)
		}
	}
}

// TestCutOff checks that a rank whose host does not answer a dial is lost after the host timeout, not
// before.
func TestCutOff(t *testing.T) {
	n := newNode(1, 4)
	n.dial(start, 2)
	n.DialFailed(start.Add(time.Second), 2, CutOff)
	n.Tick(start.Add(testHostTimeout - 1))
	if list := do(n, Lose); len(list) != 0 {
		t.Errorf("too early: %v", list)
	}
	n.DialFailed(start.Add(testHostTimeout-1), 2, CutOff)
	n.Tick(start.Add(testHostTimeout))
	if list := do(n, Lose); len(list) != 1 || list[0].Reason != Silent {
		t.Errorf("after %v: %v", testHostTimeout, list)
	}
}

// TestStoppedIsNotLost checks that a process that accepts connections and does not answer is never
// lost.
func TestStoppedIsNotLost(t *testing.T) {
	n := newNode(1, 4)
	now := start
	for range 100 {
		n.dial(now, 2)
		now = now.Add(DialTime)
		n.DialFailed(now, 2, Unanswered)
		n.Tick(now)
	}
	if list := do(n, Lose); len(list) != 0 {
		t.Errorf("after %v: %v", now.Sub(start), list)
	}
}

// TestNewLinkIsNotGreeted: the other side of a new link may exit before it notices the link, and so
// before it sends a loss or a goodbye there. A State on an earlier, dropped link does not count.
func TestNewLinkIsNotGreeted(t *testing.T) {
	n := newNode(0, 4)
	n.LinkDropped(start, 2, false)
	n.LinkUp(start, 2, false)
	n.LinkDown(start, 2, false, "its connection has ended")
	n.DialFailed(start, 2, Refused)
	if list := do(n, Lose); len(list) != 0 {
		t.Errorf("at once: %v", list)
	}
	n.Receive(start, 1, &Message{Kind: Left, Ranks: []int{2}})
	n.Tick(start.Add(missingFor))
	if list := do(n, Lose); len(list) != 0 {
		t.Errorf("it has left: %v", list)
	}
}

// TestInvalidMessages checks that invalid messages are ignored.
func TestInvalidMessages(t *testing.T) {
	for _, m := range []*Message{
		{},
		{Kind: 200},
		{Kind: Drop},
		{Kind: Lost, Ranks: []int{-1}},
		{Kind: Lost, Ranks: []int{4, 1 << 40}},
		{Kind: Left, Ranks: []int{-1, 4, 1 << 40}},
		{Kind: Left, Ranks: []int{1}}, // this rank itself
		{Kind: Failed},
		{Kind: Report},
		{Kind: Position, Rank: -1, Number: 1},
		{Kind: Position, Rank: 4, Number: 1},
		{Kind: Position, Rank: 2},
		{Kind: Here, Number: 99},
		{Kind: Noted},
		{Kind: State, Facts: []*Message{nil, {}, {Kind: Failed}, {Kind: State, Facts: []*Message{nil}}}},
	} {
		n := newNode(1, 4)
		n.Receive(start, 0, m)
		if list := n.Take(); len(list) != 0 || len(n.facts) != 0 {
			t.Errorf("%+v: %v", m, list)
		}
	}
}

// FuzzReceive passes arbitrary messages of another rank. The Node must not panic, and must not lose
// a rank that does not exist.
func FuzzReceive(f *testing.F) {
	for _, m := range []*Message{
		{Kind: Lost, Ranks: []int{3, 3}, Reason: "killed"},
		{Kind: Left, Ranks: []int{0, 2, 9}},
		{Kind: Bye},
		{Kind: Report, Cause: &Cause{Group: "g", Members: []int{1, 2}}},
		{Kind: Position, Rank: 2, Number: 1, Group: "g", Members: []int{1}, Where: []byte("w")},
		{Kind: State, Facts: []*Message{{Kind: Lost, Ranks: []int{1}}, nil, {Kind: Failed, Cause: &Cause{Group: "h"}}}},
	} {
		bytes, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		var m Message
		if json.Unmarshal(bytes, &m) != nil {
			return
		}
		n := newNode(1, 4)
		n.Receive(start, 0, &m)
		n.Receive(start, 0, &m)
		n.LinkUp(start, 2, true)
		n.LinkDown(start, 0, true, "its connection has ended")
		n.Tick(start.Add(time.Second))
		n.Leave(start.Add(time.Second))
		n.MayExit()
		for _, a := range n.Take() {
			if a.Do == Lose && slices.ContainsFunc(a.Ranks, func(r int) bool { return !n.valid(r) }) {
				t.Errorf("lost: %v", a.Ranks)
			}
		}
	})
}

var many = flag.Int("many", 1024, "how many ranks TestMany has")

// TestMany prints the number of links and messages per rank in a large job: go test
// ./internal/overlay -run TestMany -v -many 4096
func TestMany(t *testing.T) {
	t.Parallel()
	size := *many
	w := newNetwork(1, size, make([]int, size))
	w.jitter = time.Millisecond
	w.run(w.now.Add(2 * w.jitter))
	for _, p := range w.procs {
		p.node.buildAt = w.now // not after buildPerRank, because idle ranks take long in a test
	}
	w.run(w.now.Add(1500 * time.Millisecond))
	links, most := 0, 0
	for _, p := range w.procs {
		links += p.node.Links()
		most = max(most, p.node.Links())
	}
	limit := 2*bits.Len(uint(size-1)) + 2
	t.Logf("%d ranks: %.1f links per rank, at most %d", size, float64(links)/float64(size), most)
	if most > limit {
		t.Errorf("a rank has %d links, more than %d", most, limit)
	}
	count := func(what string, happen func(), complete func(p *process) bool) {
		clear(w.messages)
		begun := w.now
		happen()
		for w.now.Sub(begun) < time.Second && slices.ContainsFunc(w.procs, func(p *process) bool { return !p.dead && !complete(p) }) {
			w.run(w.now.Add(5 * time.Millisecond))
		}
		sum := 0
		for _, n := range w.messages {
			sum += n
		}
		took := w.now.Sub(begun)
		t.Logf("%s: %.1f messages per rank, at most %d; complete after %v", what, float64(sum)/float64(size), slices.Max(w.messages), took)
		if took >= time.Second {
			t.Errorf("%s: not every rank was notified within %v", what, took)
		}
	}
	count("idle for 400 ms", func() { w.run(w.now.Add(4 * Pace)) }, func(*process) bool { return true })
	count("a loss", func() { w.kill(w.procs[size/2]) }, func(p *process) bool { return len(p.lost) == 1 })
	w.run(w.now.Add(2 * Pace))
	count("a report", func() { w.report(w.procs[size/3], "g", "aborted") }, func(p *process) bool { return len(p.failed) == 1 })
}

// TestActWithoutLink has the only link of a rank end, and nothing listen at that peer's address. The
// rank knows the loss at once. It acts on it, and decides on causes reported meanwhile, after it has
// sent both on a new link, or after SuspectAfter.
func TestActWithoutLink(t *testing.T) {
	for _, linked := range []bool{true, false} {
		n := newNode(2, 4)
		n.LinkUp(start, 3, true)
		n.Receive(start, 3, &Message{Kind: State})
		n.LinkDropped(start, 0, true)
		n.Take()
		n.LinkDown(start, 3, true, engine.Exited)
		n.DialFailed(start, 3, Refused)
		n.Report(start, &Cause{Group: "g", Rank: 1})
		if n.Present(3) {
			t.Fatal("rank 2 does not know that rank 3 is lost")
		}
		list := n.Take()
		if kinds := acts(list); kinds != "" {
			t.Fatalf("rank 2 acts (%s) before any other rank can know why", kinds)
		}
		if !slices.ContainsFunc(list, func(a Action) bool { return a.Do == Dial && a.Rank == 0 }) {
			t.Fatalf("rank 0 is not dialed: %+v", list)
		}
		if linked {
			n.LinkUp(start, 0, true)
			list = n.Take()
			if i := slices.IndexFunc(list, func(a Action) bool { return a.Do == Send && a.Message.Kind == State }); i != 0 {
				t.Errorf("rank 2 does not send its facts first: %+v", list)
			}
			if kinds := acts(list); kinds != "lose " {
				t.Errorf("rank 2 acts: %s", kinds) // rank 0 decides on the cause
			}
			continue
		}
		for _, r := range []int{0, 1} {
			n.DialFailed(start, r, Unanswered)
		}
		n.Tick(start.Add(SuspectAfter))
		n.Tick(start.Add(SuspectAfter + Pace))
		if kinds := acts(n.Take()); kinds != "lose fail " {
			t.Errorf("without a link rank 2 acts: %s", kinds)
		}
	}
}

// acts names the Lose and Fail actions of a list in order.
func acts(list []Action) (kinds string) {
	for _, a := range list {
		switch a.Do {
		case Lose:
			kinds += "lose "
		case Fail:
			kinds += "fail "
		}
	}
	return kinds
}

// TestLossReportWaits has a rank report the exit of another rank, as it finds it on a data connection.
// The rank exited because of a loss of which the coordinator is notified later. The coordinator
// decides when it knows both, when its own link with the exited rank has ended and its dial has failed, or after
// confirmAfter.
func TestLossReportWaits(t *testing.T) {
	report := &Message{Kind: Report, Cause: &Cause{Group: "g", Members: []int{3, 2, 1, 0}, Kind: "lost", Lost: []int{2}, From: 2}}
	n := newNode(0, 4)
	n.Receive(start, 2, report)
	if kinds := acts(n.Take()); kinds != "" {
		t.Fatalf("rank 0 acts (%s) before it knows that rank 1 is lost", kinds)
	}
	n.Receive(start, 3, &Message{Kind: Lost, Ranks: []int{3}})
	n.Receive(start, 3, &Message{Kind: Lost, Ranks: []int{1}})
	if kinds := acts(n.Take()); kinds != "lose lose fail " {
		t.Errorf("rank 0 acts: %s", kinds)
	}

	n = newNode(0, 4)
	n.Receive(start, 2, report)
	n.LinkDown(start, 1, false, engine.Disconnected)
	if kinds := acts(n.Take()); kinds != "" {
		t.Errorf("when its link with rank 1 has ended, rank 0 acts: %s", kinds)
	}
	n.DialFailed(start, 1, Refused)
	if kinds := acts(n.Take()); kinds != "lose fail " {
		t.Errorf("when nothing listens for rank 1, rank 0 acts: %s", kinds)
	}

	n = newNode(0, 4)
	n.Receive(start, 2, report)
	n.Tick(start.Add(confirmAfter - 1))
	if kinds := acts(n.Take()); kinds != "" {
		t.Errorf("rank 0 acts (%s) before confirmAfter", kinds)
	}
	n.Tick(start.Add(confirmAfter))
	if kinds := acts(n.Take()); kinds != "fail " {
		t.Errorf("after confirmAfter rank 0 acts: %s", kinds)
	}

	for name, c := range map[string]*Cause{
		"another failure": {Group: "g", Members: []int{0, 1}, Kind: "aborted", Lost: []int{1}},
		"a departure":     {Group: "g", Members: []int{0, 1}, Kind: "lost", Lost: []int{1}, Left: true},
		"no valid rank":   {Group: "g", Members: []int{0, 1, 9}, Kind: "lost", Lost: []int{-1, 2, 3}},
		"unknown members": {Group: "g", Kind: "lost", Lost: []int{1}},
	} {
		n := newNode(0, 4)
		n.Receive(start, 2, &Message{Kind: Report, Cause: c})
		if list := do(n, Fail); len(list) != 1 {
			t.Errorf("%s: rank 0 does not decide at once", name)
		}
	}
}
