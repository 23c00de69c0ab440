package sim

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/wait"
)

// A sched runs tasks one at a time, in virtual time.
type sched struct {
	now     int64 // nanoseconds since the run began
	events  heap
	started uint64 // events
	ready   []*task
	tasks   []*task
	running *task
	live    int // tasks that are not over and not frozen for good
	choice  *rand.Rand
	log     log
	ctxs    contexts
}

// A task is a coroutine: a rank's function, or what it started beside itself.
type task struct {
	p      *proc
	number int
	resume func() (struct{}, bool)
	yield  func(struct{}) bool
	over   bool
	panic  error // why it ended, if it panicked

	// While it is parked:
	parked bool
	lot    *wait.ParkingLot // nil: it waits for time alone
	cond   wait.Cond
	until  int64 // zero: no end
	timer  int64 // when the event that looks at until comes; zero: none does
	ctx    ctxWait
}

// killed is what ends a coroutine whose process is no more.
type killed struct{}

// spawn makes a task that is ready to run.
func (s *sched) spawn(p *proc, f func()) *task {
	t := &task{p: p, number: len(s.tasks)}
	t.ctx.fire = func() { s.unpark(t) }
	t.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer t.recover()
		if p.dead {
			return
		}
		f()
	})
	s.tasks = append(s.tasks, t)
	if !p.stopped {
		s.live++
	}
	s.makeReady(t)
	return t
}

// recover ends the task, and keeps what it panicked with.
func (t *task) recover() {
	r := recover()
	if _, gone := r.(killed); r == nil || gone {
		return
	}
	t.panic = fmt.Errorf("rank %d panicked: %v\n%s", t.p.rank, r, debug.Stack())
}

func (s *sched) makeReady(t *task) {
	if t.p.frozen && !t.p.dead {
		t.p.waiting = append(t.p.waiting, t)
		return
	}
	s.ready = append(s.ready, t)
}

// park gives way until the task is made ready again.
func (s *sched) park(t *task) {
	t.parked = true
	t.p.parked = append(t.p.parked, t)
	if t.until != 0 && (t.timer == 0 || t.timer > t.until) {
		s.arm(t)
	}
	t.yield(struct{}{})
	if t.p.dead {
		panic(killed{})
	}
}

// arm has the task looked at when its wait may be over. A task has one such
// event that matters: most waits end long before their time.
func (s *sched) arm(t *task) {
	at := t.until
	t.timer = at
	s.at(at, func() {
		if t.timer != at {
			return
		}
		t.timer = 0
		switch {
		case !t.parked || t.until == 0:
		case t.until <= s.now:
			s.unpark(t)
		default:
			s.arm(t)
		}
	})
}

// unpark makes a parked task ready.
func (s *sched) unpark(t *task) {
	if !t.parked {
		return
	}
	t.parked = false
	i := slices.Index(t.p.parked, t)
	t.p.parked = slices.Delete(t.p.parked, i, i+1)
	s.ctxs.remove(&t.ctx)
	s.makeReady(t)
}

// at has do called at a time.
func (s *sched) at(at int64, do func()) {
	s.started++
	s.events.push(event{at, s.started, do})
}

// A HangError says that a run did not come to its end.
type HangError struct {
	After time.Duration // virtual
	Ranks []int         // that had not returned
	why   string
}

func (e *HangError) Error() string {
	var list strings.Builder
	for i, r := range e.Ranks {
		if i > 0 {
			list.WriteString(", ")
		}
		fmt.Fprint(&list, r)
	}
	return fmt.Sprintf("the simulated ranks %s hang after %v: %s", list.String(), e.After, e.why)
}

// errPanic is behind the error of a run in which a rank panicked.
var errPanic = errors.New("a simulated rank panicked")

// run runs until all tasks are over.
func (s *sched) run(limit int64) error {
	for s.live > 0 {
		if n := len(s.ready); n > 0 {
			i := 0
			if n > 1 {
				i = s.choice.IntN(n)
			}
			t := s.ready[i]
			s.ready[i] = s.ready[n-1]
			s.ready = s.ready[:n-1]
			if err := s.step(t); err != nil {
				return err
			}
			continue
		}
		if len(s.events) == 0 {
			return s.hang("nothing will happen any more")
		}
		e := s.events.pop()
		if e.at > limit {
			return s.hang("the run's limit has passed")
		}
		s.now = e.at
		e.do()
	}
	return nil
}

// step lets a task run until it waits.
func (s *sched) step(t *task) error {
	s.log.note(s.now, "run", t.p.rank, t.number, 0)
	s.running = t
	_, more := t.resume()
	s.running = nil
	if !more {
		t.over = true
		if !t.p.stopped {
			s.live--
		}
		if t.panic != nil {
			return fmt.Errorf("%w: %w", errPanic, t.panic)
		}
	}
	s.ctxs.sweep()
	return nil
}

func (s *sched) hang(why string) error {
	e := &HangError{After: time.Duration(s.now), why: why}
	for _, t := range s.tasks {
		if !t.over && !t.p.stopped && !slices.Contains(e.Ranks, t.p.rank) {
			e.Ranks = append(e.Ranks, t.p.rank)
		}
	}
	slices.Sort(e.Ranks)
	return e
}

// drain ends all coroutines that are left, so that nothing of a run remains.
func (s *sched) drain() {
	for _, t := range s.tasks {
		t.p.dead = true
	}
	for i := 0; i < len(s.tasks); i++ { // those that end may start others
		t := s.tasks[i]
		for more := !t.over; more; {
			t.parked = false
			s.running = t
			_, more = t.resume()
		}
		t.over = true
	}
	s.running = nil
}

// start is when virtual time begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *sched) time() time.Time { return start.Add(time.Duration(s.now)) }
