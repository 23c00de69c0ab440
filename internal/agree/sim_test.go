package agree

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"
	"time"
)

// A sim runs ranks as coroutines, one at a time, over a store that decides who
// goes on, who dies, whose answer is lost and who waits in vain: a seed replays.
type sim struct {
	rng     *rand.Rand
	values  map[string][]byte
	actors  []*actor
	plain   bool // Create sets, whatever is there: the broken form
	fatal   int  // how many may die
	log     []string
	crashes int // what has happened
	lost    int
	vain    int
}

// An actor is a rank or a newcomer. It is the store as that one sees it.
type actor struct {
	s     *sim
	name  string
	yield func(request) bool
	step  func() (request, bool)
	stop  func()
	ask   request
	value []byte
	err   error
	over  bool
	dead  bool
}

type request struct {
	verb, key string
	value     []byte
}

var (
	errCrashed = errors.New("this process has crashed")
	errAnswer  = errors.New("the answer is lost")
	errEnd     = errors.New("nothing else happens")
)

func (a *actor) call(r request) ([]byte, error) {
	if a.dead || !a.yield(r) {
		a.dead = true
		return nil, errCrashed
	}
	return a.value, a.err
}

func (a *actor) Append(_ context.Context, key string, value []byte) error {
	_, err := a.call(request{"append", key, value})
	return err
}

func (a *actor) Get(_ context.Context, key string) ([]byte, error) {
	return a.call(request{"get", key, nil})
}

func (a *actor) Await(_ context.Context, key string, _ time.Duration) ([]byte, error) {
	return a.call(request{"await", key, nil})
}

func (a *actor) Create(_ context.Context, key string, value []byte) ([]byte, error) {
	return a.call(request{"create", key, value})
}

// add starts an actor, up to its first request.
func (s *sim) add(name string, body func(a *actor)) {
	a := &actor{s: s, name: name}
	a.step, a.stop = iter.Pull(func(yield func(request) bool) {
		a.yield = yield
		body(a)
	})
	s.actors = append(s.actors, a)
	s.resume(a)
}

func (s *sim) resume(a *actor) {
	next, more := a.step()
	a.ask, a.over = next, !more
}

// serve carries out a request.
func (s *sim) serve(r request) []byte {
	old, there := s.values[r.key]
	switch r.verb {
	case "append":
		s.values[r.key] = append(slices.Clone(old), r.value...)
	case "create":
		if !there || s.plain {
			s.values[r.key] = r.value
		}
	}
	return s.values[r.key]
}

// run goes on until nobody can. It reports whether that took too long.
func (s *sim) run() (hang bool) {
	for range 20_000 {
		var ready []*actor
		waiting := false
		for _, a := range s.actors {
			if a.over {
				continue
			}
			if _, there := s.values[a.ask.key]; a.ask.verb == "get" && !there {
				waiting = true
				continue
			}
			ready = append(ready, a)
		}
		if len(ready) == 0 {
			if !waiting {
				return false
			}
			for _, a := range s.actors {
				if !a.over {
					a.value, a.err = nil, errEnd
					s.resume(a)
				}
			}
			continue
		}
		a := ready[s.rng.IntN(len(ready))]
		how := s.act(a)
		s.log = append(s.log, fmt.Sprintf("%s %s %s: %s", a.name, a.ask.verb, a.ask.key, how))
		if a.dead {
			a.stop()
			a.over = true
			continue
		}
		s.resume(a)
	}
	return true
}

// act decides what becomes of an actor's request, and says so.
func (s *sim) act(a *actor) string {
	a.value, a.err = nil, nil
	switch p := s.rng.IntN(100); {
	case p < 3 && s.crashes < s.fatal:
		s.crashes++
		if s.rng.IntN(2) == 0 {
			s.serve(a.ask)
		}
		a.dead = true
		return "dies"
	case p < 8:
		s.lost++
		s.serve(a.ask)
		a.err = errAnswer
		return "lost answer"
	}
	a.value = s.serve(a.ask)
	if a.ask.verb == "await" && a.value == nil {
		s.vain++
	}
	return fmt.Sprintf("%q", a.value)
}

// hash is of all that happened.
func (s *sim) hash() uint64 {
	h := fnv.New64a()
	for _, l := range s.log {
		_, _ = h.Write([]byte(l + "\n"))
	}
	return h.Sum64()
}
