package tutti

import (
	"context"
	"testing"
	"time"
)

// TestNap holds how long the device is left alone: until somebody needs to know more.
func TestNap(t *testing.T) {
	const known, unknown = 7, 8
	list := func(signs ...uint64) (g []given) {
		for i, s := range signs {
			g = append(g, given{t: &task{seq: uint64(10 + i), sign: s}})
		}
		return g
	}
	ten := list(known, known, known, known, known, known, known, known, known, known)
	for name, c := range map[string]struct {
		given       []given
		wanted      []uint64
		passed      time.Duration
		keen        bool
		least, most time.Duration
	}{
		"nothing is launched":       {nil, []uint64{10}, 0, true, longNap, longNap},
		"nobody waits":              {ten, nil, 0, true, longNap, longNap},
		"who waits waits for later": {ten, []uint64{20}, 0, true, longNap, longNap},
		"who waits has been told":   {ten, []uint64{9}, 0, true, longNap, longNap},
		"the last":                  {ten, []uint64{19}, 0, true, waitNap, waitNap},
		"one in the middle":         {ten, []uint64{19, 10, 25}, 0, false, shortNap, 50 * time.Microsecond},
		"it is soon over":           {ten, []uint64{11}, 10 * time.Microsecond, true, 0, 0},
		"it has begun long ago":     {ten, []uint64{13}, 380 * time.Microsecond, false, 0, 0},
		"it is late":                {ten, []uint64{13}, time.Hour, false, 0, 0},
		"others are before it":      {list(known, unknown, known), []uint64{12}, time.Hour, true, shortNap, shortNap},
		"nothing is known":          {list(unknown, unknown), []uint64{11}, 0, true, shortNap, shortNap},
		"nothing is known of one":   {list(unknown), []uint64{10}, 0, false, 0, 0},
	} {
		comm := &Comm{given: c.given, wanted: c.wanted}
		comm.tempos[known%len(comm.tempos)] = tempo{known, 100 * time.Microsecond}
		m := &meter{since: time.Now().Add(-c.passed), keen: c.keen}
		if d := comm.nap(m); d > c.most || d < c.least && time.Since(m.since) < c.passed+100*time.Microsecond {
			t.Errorf("%s: %v, not %v to %v", name, d, c.least, c.most)
		}
	}
}

type aStream struct{}

func (aStream) Handle() uintptr { return 0 }

// TestJoins holds which operations need no event of their own.
func TestJoins(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const known, quick, unknown = 7, 9, 10
	for name, c := range map[string]struct {
		t, next *task
		joined  int
		want    bool
	}{
		"alike":                 {&task{ctx: ctx, sign: known}, &task{ctx: ctx, sign: known}, 0, true},
		"the last":              {&task{ctx: ctx, sign: known}, nil, 0, false},
		"another follows":       {&task{ctx: ctx, sign: known}, &task{ctx: ctx, sign: quick}, 0, false},
		"in a stream's order":   {&task{ctx: ctx, sign: known, on: aStream{}}, &task{ctx: ctx, sign: known}, 0, false},
		"the next is in one's":  {&task{ctx: ctx, sign: known}, &task{ctx: ctx, sign: known, on: aStream{}}, 0, false},
		"another context":       {&task{ctx: ctx, sign: known}, &task{ctx: context.Background(), sign: known}, 0, false},
		"somebody waits for it": {&task{ctx: ctx, sign: known, seq: 5}, &task{ctx: ctx, sign: known, seq: 6}, 0, false},
		"no sign":               {&task{ctx: ctx}, &task{ctx: ctx}, 0, false},
		"nothing is known":      {&task{ctx: ctx, sign: unknown}, &task{ctx: ctx, sign: unknown}, 0, false},
		"they take too long":    {&task{ctx: ctx, sign: known}, &task{ctx: ctx, sign: known}, 1, false},
		"many":                  {&task{ctx: ctx, sign: quick}, &task{ctx: ctx, sign: quick}, joinMost - 2, true},
		"too many":              {&task{ctx: ctx, sign: quick}, &task{ctx: ctx, sign: quick}, joinMost - 1, false},
	} {
		comm := &Comm{wanted: []uint64{5}}
		comm.tempos[known] = tempo{known, joinFor / 2}
		comm.tempos[quick] = tempo{quick, 1}
		if comm.joins(c.t, c.next, c.joined) != c.want {
			t.Errorf("%s: joined %v", name, !c.want)
		}
	}
}

// TestMeter holds that operations are timed if they look alike, from when the device
// began with them.
func TestMeter(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	var m meter
	m.began(at(0))
	for i, c := range []struct {
		asked    bool
		n        int
		sign     uint64
		at, each int
	}{
		{true, 2, 5, 200, 100},
		{true, 3, 5, 400, 80},  // of five
		{true, 1, 6, 430, 30},  // it was not over at 400
		{false, 1, 7, 430, 0},  // nobody knows when that began
		{false, 1, 7, 450, 20}, // this one began then
		{true, 125, 7, 5470, 40},
		{true, 64, 7, 9930, 50},  // those before count half from now on
		{true, 95, 7, 10880, 30}, // with as many of 50
		{true, 1, 0, 10980, 100},
		{true, 1, 7, 11080, 100},
	} {
		m.asked = c.asked
		want := time.Duration(c.each) * time.Millisecond
		if got := m.count(c.n, c.sign, at(c.at)); got != want {
			t.Errorf("step %d: %v, not %v", i, got, want)
		}
	}
	m.began(at(9000))
	if got := m.count(1, 8, at(9010)); got != 10*time.Millisecond {
		t.Errorf("after a pause: %v", got)
	}
}
