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

// A sim runs ranks as coroutines, one at a time, on a simulated store. The store
// decides by a random generator which rank runs next, which rank crashes, which
// answer is lost, and which wait times out. So a seed determines the whole run.
type sim struct {
	rng     *rand.Rand
	values  map[string][]byte
	actors  []*actor
	plain   bool // Create overwrites an existing key: a broken store, which trials must detect
	fatal   int  // maximum number of crashes
	log     []string
	crashes int // number of crashes
	lost    int // number of lost answers
	vain    int // number of calls of Await that timed out
}

// An actor is a rank or a newcomer. It implements Store for that process.
type actor struct {
	s     *sim
	name  string
	yield func(request) bool
	step  func() (request, bool)
	stop  func()
	ask   request // the pending request
	value []byte  // answer to the last request
	err   error   // error of the last request
	over  bool    // the coroutine has ended
	dead  bool    // the process has crashed
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

// serve carries out a request, and returns the value of its key.
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

// run runs the actors until all have ended. It reports whether that took too many steps.
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

// act decides the outcome of an actor's request, and returns it for the log.
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

// hash returns a hash of the log.
func (s *sim) hash() uint64 {
	h := fnv.New64a()
	for _, l := range s.log {
		_, _ = h.Write([]byte(l + "\n"))
	}
	return h.Sum64()
}
