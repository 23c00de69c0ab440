package agree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// A trial is a job whose ranks decide on several generations in a sim. The sim runs one rank at
// a time, so the maps need no lock.
type trial struct {
	sim
	views map[string]map[string]*Decision // the decision that each actor saw, by generation and actor
	said  map[string]uint64               // Question.Value of each actor, by generation and actor
	grown int                             // number of decisions by grow
	ends  map[string]string               // result of each actor, by name
}

const (
	trialRanks       = 5
	trialGenerations = 4
)

func newTrial(seed uint64, plain bool) *trial {
	t := &trial{
		sim: sim{
			rng: rand.New(rand.NewPCG(seed, 1)), values: make(map[string][]byte), plain: plain,
		},
		views: make(map[string]map[string]*Decision), said: make(map[string]uint64), ends: make(map[string]string),
	}
	t.fatal = t.rng.IntN(trialRanks)
	for r := range trialRanks {
		t.add(fmt.Sprint("rank ", r), func(a *actor) { t.ends[a.name] = t.member(a, 0, r, trialRanks) })
	}
	t.add("newcomer", func(a *actor) { t.ends[a.name] = t.newcomer(a) })
	return t
}

// some returns a few random ranks of a group of the given size.
func (t *trial) some(size int) (list []int) {
	for r := range size {
		if t.rng.IntN(12) == 0 {
			list = append(list, r)
		}
	}
	return list
}

// member takes part in the decisions from generation e on, and returns how that ended.
func (t *trial) member(a *actor, e, self, size int) string {
	for ; e < trialGenerations; e++ {
		key := fmt.Sprint(e)
		q := Question{
			Key: key, Self: self, Size: size, Value: uint64(t.rng.IntN(9)), Timeout: 50 * time.Millisecond,
			Absent: t.some(size),
			Look: func() (lost []int, patient bool) {
				return t.some(size), false
			},
		}
		var d *Decision
		err := errAnswer
		for errors.Is(err, errAnswer) {
			if self == 0 && e > 0 && t.grown == 0 && t.rng.IntN(4) == 0 {
				d, err = t.grow(a, q)
			} else {
				t.said[key+a.name] = q.Value
				d, err = Settle(context.Background(), a, q)
			}
		}
		if err != nil {
			return err.Error()
		}
		t.saw(key, a, d)
		if self = d.Rank(self); self < 0 {
			return "excluded"
		}
		size = d.Size()
	}
	return "done"
}

// grow proposes all members and the newcomer.
func (t *trial) grow(a *actor, q Question) (*Decision, error) {
	d := &Decision{Late: []int64{1}, Tickets: 1}
	for r := range q.Size {
		d.Members = append(d.Members, r)
	}
	got, err := Propose(context.Background(), a, q.Key, d)
	if err == nil && got.Late != nil {
		t.grown++
	}
	return got, err
}

// newcomer reads the decisions until one admits it, and then takes part like a member. It
// returns how that ended.
func (t *trial) newcomer(a *actor) string {
	for e := range trialGenerations {
		d, err := Learn(context.Background(), a, fmt.Sprint(e))
		for errors.Is(err, errAnswer) {
			d, err = Learn(context.Background(), a, fmt.Sprint(e))
		}
		if err != nil {
			return err.Error()
		}
		t.saw(fmt.Sprint(e), a, d)
		if r := d.Newcomer(1); r >= 0 {
			return t.member(a, e+1, r, d.Size())
		}
	}
	return "never let in"
}

func (t *trial) saw(key string, a *actor, d *Decision) {
	if t.views[key] == nil {
		t.views[key] = make(map[string]*Decision)
	}
	t.views[key][a.name] = d
}

// check returns an error if the decisions of the trial break the contract of the package.
func (t *trial) check() error {
	names := make([]string, trialRanks)
	for r := range names {
		names[r] = fmt.Sprint("rank ", r)
	}
	for e := range trialGenerations {
		key := fmt.Sprint(e)
		views := t.views[key]
		if len(views) == 0 {
			return nil
		}
		var first *Decision
		for _, name := range slices.Sorted(maps.Keys(views)) {
			if first == nil {
				first = views[name]
			}
			if !reflect.DeepEqual(first, views[name]) {
				return fmt.Errorf("generation %d has two successors: %+v and, as %s saw it, %+v", e, first, name, views[name])
			}
		}
		least := uint64(99)
		next := make([]string, 0, len(names))
		for _, m := range first.Members {
			next = append(next, names[m])
			if v, came := t.said[key+names[m]]; came {
				least = min(least, v)
			} else if first.Late == nil {
				return fmt.Errorf("%s is in the successor of generation %d, but never came", names[m], e)
			}
		}
		if first.Late == nil && first.Value != least {
			return fmt.Errorf("generation %d: the number is %d, the least is %d", e, first.Value, least)
		}
		for range first.Late {
			next = append(next, "newcomer")
		}
		for name := range views {
			if !slices.Contains(names, name) && name != "newcomer" && !slices.Contains(next, name) {
				return fmt.Errorf("%s came back in generation %d", name, e)
			}
		}
		names = next
	}
	return nil
}

func (t *trial) conduct() error {
	hang := t.run()
	for _, a := range t.actors {
		a.stop()
	}
	if hang {
		return errors.New("it does not end")
	}
	return t.check()
}

// TestSchedules runs trials with random schedules. Ranks crash at any request, lose answers, and
// are wrongly reported as lost.
func TestSchedules(t *testing.T) {
	seeds := 1_000
	if testing.Short() {
		seeds = 300
	}
	var crashes, lost, vain, grown, excluded, done int
	for seed := range seeds {
		trial := newTrial(uint64(seed), false)
		if err := trial.conduct(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(trial.log, "\n"))
		}
		crashes, lost, vain, grown = crashes+trial.crashes, lost+trial.lost, vain+trial.vain, grown+trial.grown
		for _, end := range trial.ends {
			switch end {
			case "excluded":
				excluded++
			case "done":
				done++
			}
		}
	}
	t.Logf("%d seeds: %d crashes, %d lost answers, %d waits in vain, %d grown, %d excluded, %d to the end",
		seeds, crashes, lost, vain, grown, excluded, done)
	for what, n := range map[string]int{
		"crashes": crashes, "lost answers": lost, "waits in vain": vain, "growth": grown, "exclusion": excluded, "success": done,
	} {
		if n < seeds/20 {
			t.Errorf("only %d times: %s", n, what)
		}
	}
}

// TestReplay runs each seed twice. Both runs must be equal.
func TestReplay(t *testing.T) {
	for seed := range uint64(100) {
		a, b := newTrial(seed, false), newTrial(seed, false)
		if err := errors.Join(a.conduct(), b.conduct()); err != nil {
			t.Fatal(err)
		}
		if a.hash() != b.hash() {
			t.Errorf("seed %d does not replay", seed)
		}
	}
}

// TestBroken checks that the trials detect a store whose Create overwrites an existing key.
func TestBroken(t *testing.T) {
	for seed := range uint64(1000) {
		if err := newTrial(seed, true).conduct(); err != nil {
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Error("no seed has shown it")
}

// TestStore runs the protocol on a real store in memory. Settle also ends by its Timeout, by
// its context, and with the store.
func TestStore(t *testing.T) {
	m := store.NewMemory(store.Limits{})
	defer m.Close()
	s := On(m)
	type outcome struct {
		d   *Decision
		err error
	}
	got := make(chan outcome)
	for _, r := range []int{0, 1, 3} {
		go func() {
			d, err := Settle(t.Context(), s, Question{
				Key: "q", Self: r, Size: 4, Value: uint64(10 - r), Timeout: time.Hour,
				Look: func() ([]int, bool) { return []int{2}, false },
			})
			got <- outcome{d, err}
		}()
	}
	want := &Decision{Members: []int{0, 1, 3}, Value: 7}
	for range 3 {
		if o := <-got; o.err != nil || !reflect.DeepEqual(o.d, want) {
			t.Errorf("%+v, %v", o.d, o.err)
		}
	}
	// Rank 2 was not lost, but comes too late.
	d, err := Settle(t.Context(), s, Question{Key: "q", Self: 2, Size: 4, Value: 1})
	if err != nil || d.Rank(2) != -1 || d.Rank(3) != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	// A rank whose Timeout ends alone decides alone.
	d, err = Settle(t.Context(), s, Question{Key: "r", Self: 1, Size: 2, Timeout: time.Millisecond})
	if err != nil || d.Size() != 1 || d.Rank(1) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	// Settle does not wait for Absent ranks. They become members if they take part.
	d, err = Settle(t.Context(), s, Question{Key: "a", Self: 1, Size: 3, Absent: []int{0, 2}, Timeout: time.Hour})
	if err != nil || d.Size() != 1 || d.Rank(1) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if err := s.Append(t.Context(), jobstore.Announced("b"), []byte("0 5\n")); err != nil {
		t.Fatal(err)
	}
	d, err = Settle(t.Context(), s, Question{Key: "b", Self: 1, Size: 3, Value: 6, Absent: []int{0, 2}, Timeout: time.Hour})
	if want := (&Decision{Members: []int{0, 1}, Value: 5}); err != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, %v", d, err)
	}
	// The context ends a wait without a bound.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = Settle(ctx, s, Question{Key: "s", Self: 0, Size: 2, Look: func() ([]int, bool) { return nil, true }})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := Learn(ctx, s, "s"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	// A closed store returns an error.
	m.Close()
	if _, err := Settle(t.Context(), s, Question{Key: "t", Size: 1}); !errors.Is(err, store.ErrClosed) {
		t.Error(err)
	}
}

// TestInvalidValues checks that invalid values in the store are reported.
func TestInvalidValues(t *testing.T) {
	for _, c := range []struct{ key, text, says string }{
		{"q/here", "0 1\n7 1\n", "is not a list of ranks"},
		{"q/here", "hello\n", "is not a list of ranks"},
		{"q/next", "hello", "is not a decision"},
		{"q/next", "{}", "is not a decision"},
	} {
		m := store.NewMemory(store.Limits{})
		defer m.Close()
		if err := m.Set(t.Context(), c.key, []byte(c.text)); err != nil {
			t.Fatal(err)
		}
		_, err := Settle(t.Context(), On(m), Question{Key: "q", Size: 1})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}
