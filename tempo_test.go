package tutti

import (
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
		least, most time.Duration
	}{
		"nothing is launched":       {nil, []uint64{10}, 0, longNap, longNap},
		"nobody waits":              {ten, nil, 0, longNap, longNap},
		"who waits waits for later": {ten, []uint64{20}, 0, longNap, longNap},
		"who waits has been told":   {ten, []uint64{9}, 0, longNap, longNap},
		"the last":                  {ten, []uint64{19}, 0, 400 * time.Microsecond, longNap},
		"one in the middle":         {ten, []uint64{19, 13, 25}, 0, 150 * time.Microsecond, 200 * time.Microsecond},
		"it has begun long ago":     {ten, []uint64{13}, 380 * time.Microsecond, 0, 0},
		"it is late":                {ten, []uint64{13}, time.Hour, 0, 0},
		"others are before it":      {list(known, unknown, known), []uint64{12}, time.Hour, shortNap, shortNap},
		"nothing is known":          {list(unknown, unknown), []uint64{11}, 0, shortNap, shortNap},
		"nothing is known of one":   {list(unknown), []uint64{10}, 0, 0, 0},
	} {
		comm := &Comm{given: c.given, wanted: c.wanted}
		comm.tempos[known%len(comm.tempos)] = tempo{known, 100 * time.Microsecond}
		m := &meter{since: time.Now().Add(-c.passed)}
		if d := comm.nap(m); d > c.most || d < c.least && time.Since(m.since) < c.passed+100*time.Microsecond {
			t.Errorf("%s: %v, not %v to %v", name, d, c.least, c.most)
		}
	}
}

// TestMeter holds that operations are timed if they look alike, from when the device
// began with them.
func TestMeter(t *testing.T) {
	c := new(Comm)
	var m meter
	if !c.measure(&m, true) || c.measure(&m, true) {
		t.Error("it is not known when the device began")
	}
	m.since = m.since.Add(-time.Second)
	m.count(2, 5)
	m.count(8, 5)
	c.measure(&m, true)
	if d := c.tempo(5); d < 100*time.Millisecond {
		t.Errorf("ten operations took a second, and each %v", d)
	}
	m.count(1, 5)
	m.count(1, 6)
	c.measure(&m, false)
	if c.tempo(6) != 0 || c.tempo(5+uint64(len(c.tempos))) != 0 {
		t.Error("a time is known of what was not timed")
	}
	if !c.measure(&m, true) {
		t.Error("the device had nothing, and did not begin")
	}
}
