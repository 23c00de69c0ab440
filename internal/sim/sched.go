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
	started uint64 // number of events that were scheduled
	ready   []*task
	tasks   []*task
	running *task
	live    int // tasks that have not ended and for whose process the run waits
	choice  *rand.Rand
	log     log
	ctxs    contexts
}

// A task is a coroutine: a rank's function, or a function that it has started with
// Go.
type task struct {
	p      *proc
	number int
	resume func() (struct{}, bool)
	yield  func(struct{}) bool
	over   bool
	panic  error // why it ended, if it panicked

	// Valid while the task is parked:
	parked bool
	lot    *wait.ParkingLot // nil: it waits for a time only
	cond   wait.Cond
	until  int64 // zero: no deadline
	timer  int64 // virtual time of the event that checks until; zero: none
	ctx    ctxWait
}

// killed is the panic value that ends a coroutine of a dead process.
type killed struct{}

// spawn makes a coroutine that runs f, and makes it ready. Only step and drain
// resume it. If the process is dead by then, f is not called.
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
	if p.awaited() {
		s.live++
	}
	s.makeReady(t)
	return t
}

// recover ends the task, and keeps the value with which it panicked.
func (t *task) recover() {
	r := recover()
	if _, gone := r.(killed); r == nil || gone {
		return
	}
	t.panic = fmt.Errorf("rank %d panicked: %v\n%s", t.p.rank, r, debug.Stack())
}

func (s *sched) makeReady(t *task) {
	if t.p.suspended && !t.p.dead {
		t.p.held = append(t.p.held, t)
		return
	}
	s.ready = append(s.ready, t)
}

// park suspends the running task until unpark.
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

// arm schedules a check of the task's deadline. A task has one such event that
// matters, because most waits end long before their deadline.
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

// at calls do at a virtual time.
func (s *sched) at(at int64, do func()) {
	s.started++
	s.events.push(event{at, s.started, do})
}

// A HangError says that a run did not end.
type HangError struct {
	After time.Duration // virtual time
	Ranks []int         // ranks whose functions had not returned
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

// errPanic is wrapped by the error of a run in which a rank panicked.
var errPanic = errors.New("a simulated rank panicked")

// run resumes ready tasks, and performs events when none is ready, until every live
// task has ended. limit is a virtual time in nanoseconds. run returns a HangError
// if no event is left or the next one is after limit, and an error that wraps
// errPanic if a task panicked. The caller then ends the remaining tasks with drain.
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

// step runs a task until it parks or ends, and then fires the waits of contexts
// that the task has ended. It returns an error that wraps errPanic if the task
// panicked. The death of the task's process is no error.
func (s *sched) step(t *task) error {
	s.log.note(s.now, "run", t.p.rank, t.number, 0)
	s.running = t
	_, more := t.resume()
	s.running = nil
	if !more {
		t.over = true
		if t.p.awaited() {
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
		if !t.over && t.p.awaited() && !slices.Contains(e.Ranks, t.p.rank) {
			e.Ranks = append(e.Ranks, t.p.rank)
		}
	}
	slices.Sort(e.Ranks)
	return e
}

// drain ends all remaining coroutines, so that nothing of a run remains. It marks
// every process dead, and resumes each task, which then panics with killed and
// unwinds.
func (s *sched) drain() {
	for _, t := range s.tasks {
		t.p.dead = true
	}
	for i := 0; i < len(s.tasks); i++ { // a task that ends may start others
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

// start is the beginning of virtual time.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *sched) time() time.Time { return start.Add(time.Duration(s.now)) }
