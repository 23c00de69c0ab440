package gpu

import (
	"context"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// submitted returns a submission.
func submitted(ctx context.Context, signature, seq uint64, stream any) *submission {
	return &submission{op: &engine.DeviceOp{Ctx: ctx, Seq: seq, Stream: stream}, signature: signature}
}

// TestPollDelay checks that the device is not polled before an awaited operation can complete.
func TestPollDelay(t *testing.T) {
	const known, unknown = 7, 8
	list := func(signatures ...uint64) (list []submission) {
		for i, s := range signatures {
			list = append(list, *submitted(t.Context(), s, uint64(10+i), nil))
		}
		return list
	}
	ten := list(known, known, known, known, known, known, known, known, known, known)
	for name, c := range map[string]struct {
		inflight    []submission
		awaited     []uint64
		passed      time.Duration
		spinAllowed bool
		least, most time.Duration
	}{
		"nothing is launched":            {nil, []uint64{10}, 0, true, maxPollDelay, maxPollDelay},
		"no caller waits":                {ten, nil, 0, true, maxPollDelay, maxPollDelay},
		"a caller waits for a later one": {ten, []uint64{20}, 0, true, maxPollDelay, maxPollDelay},
		"a caller waits for an earlier":  {ten, []uint64{9}, 0, true, maxPollDelay, maxPollDelay},
		"the last":                       {ten, []uint64{19}, 0, true, maxAwaitedDelay, maxAwaitedDelay},
		"one in the middle":              {ten, []uint64{19, 10, 25}, 0, false, minPollDelay, 50 * time.Microsecond},
		"it completes soon":              {ten, []uint64{11}, 10 * time.Microsecond, true, 0, 0},
		"it began long ago":              {ten, []uint64{13}, 380 * time.Microsecond, false, 0, 0},
		"it is late":                     {ten, []uint64{13}, time.Hour, false, 0, 0},
		"others are before it":           {list(known, unknown, known), []uint64{12}, time.Hour, true, minPollDelay, minPollDelay},
		"no cost is known":               {list(unknown, unknown), []uint64{11}, 0, true, minPollDelay, minPollDelay},
		"the cost of one is not known":   {list(unknown), []uint64{10}, 0, false, 0, 0},
	} {
		p := &pipeline{awaited: c.awaited}
		for _, s := range c.inflight {
			p.inflight.Push(s)
		}
		p.costs[known%len(p.costs)] = costEstimate{known, 100 * time.Microsecond}
		m := &costMeter{since: time.Now().Add(-c.passed), spinAllowed: c.spinAllowed}
		if d := p.pollDelay(m); d > c.most || d < c.least && time.Since(m.since) < c.passed+100*time.Microsecond {
			t.Errorf("%s: %v, not %v to %v", name, d, c.least, c.most)
		}
	}
}

// TestCoalesces checks which operations need no completion event of their own. No engine runs; the test calls
// the pipeline's method directly.
func TestCoalesces(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const known, quick, unknown = 7, 9, 10
	op := func(signature uint64) *submission { return submitted(ctx, signature, 0, nil) }
	for name, c := range map[string]struct {
		s, next *submission
		n       int
		want    bool
	}{
		"alike":                     {op(known), op(known), 0, true},
		"the last":                  {op(known), nil, 0, false},
		"another follows":           {op(known), op(quick), 0, false},
		"ordered with a stream":     {submitted(ctx, known, 0, "stream"), op(known), 0, false},
		"the next ordered with one": {op(known), submitted(ctx, known, 0, "stream"), 0, false},
		"another context":           {op(known), submitted(context.Background(), known, 0, nil), 0, false},
		"a caller waits for it":     {submitted(ctx, known, 5, nil), submitted(ctx, known, 6, nil), 0, false},
		"no signature":              {op(0), op(0), 0, false},
		"no cost is known":          {op(unknown), op(unknown), 0, false},
		"they take too long":        {op(known), op(known), 1, false},
		"many":                      {op(quick), op(quick), maxCoalesced - 2, true},
		"too many":                  {op(quick), op(quick), maxCoalesced - 1, false},
	} {
		p := &pipeline{awaited: []uint64{5}}
		p.costs[known] = costEstimate{known, coalesceTime / 2}
		p.costs[quick] = costEstimate{quick, 1}
		if p.coalesces(c.s, c.next, c.n) != c.want {
			t.Errorf("%s: coalesces %v", name, !c.want)
		}
	}
}

// TestCostMeter checks that operations with one signature are timed from when the device began with
// them.
func TestCostMeter(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	var m costMeter
	m.start(at(0))
	for i, c := range []struct {
		polled    bool
		n         int
		signature uint64
		at, each  int
	}{
		{true, 2, 5, 200, 100},
		{true, 3, 5, 400, 80},  // average of five
		{true, 1, 6, 430, 30},  // it was not over at 400
		{false, 1, 7, 430, 0},  // its start is unknown
		{false, 1, 7, 450, 20}, // this one began then
		{true, 125, 7, 5470, 40},
		{true, 64, 7, 9930, 50},  // earlier ones count half from now on
		{true, 95, 7, 10880, 30}, // averaged with as many of 50
		{true, 1, 0, 10980, 100},
		{true, 1, 7, 11080, 100},
	} {
		m.polled = c.polled
		want := time.Duration(c.each) * time.Millisecond
		if got := m.count(c.n, c.signature, at(c.at)); got != want {
			t.Errorf("step %d: %v, not %v", i, got, want)
		}
	}
	m.start(at(9000))
	if got := m.count(1, 8, at(9010)); got != 10*time.Millisecond {
		t.Errorf("after a pause: %v", got)
	}
}
