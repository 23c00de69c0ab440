package store

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"sync"
)

// A state is the content of a store and the requests that wait for it. It holds all
// of the logic and does no I/O. Keys are as on the wire, userPrefix included. The state
// owns the values that are passed to it. Callers must not change the values that it
// returns. Its methods may be called concurrently.
type state struct {
	limits Limits
	budget *budget

	mu      sync.Mutex
	values  map[string][]byte    // guarded by mu
	queues  map[string][][]byte  // never an empty queue; guarded by mu
	queued  int                  // values in all queues; guarded by mu
	waiters map[string][]*waiter // by missing key; guarded by mu
	waiting int                  // waiting requests; guarded by mu
	closed  bool                 // guarded by mu
}

// A waiter is a request that waits for keys. state.mu guards its fields until ready
// is closed; then they do not change.
type waiter struct {
	keys     []string      // the keys that were missing at the start
	missing  int           // how many keys are still missing
	mayPop   bool          // the request may be part of a Pop, which takes a value
	bytes    int64         // taken from the budget
	ready    chan struct{} // closed when the wait ends
	canceled bool          // the wait ended before all keys existed
}

// entryBytes is the overhead of an entry in bytes, in addition to its key and value.
const entryBytes = 64

func newState(limits Limits) *state {
	limits.fill()
	s := &state{
		limits: limits, budget: new(budget),
		values: make(map[string][]byte), queues: make(map[string][][]byte), waiters: make(map[string][]*waiter),
	}
	s.budget.left.Store(limits.Bytes)
	return s
}

// put stores a value if the limits allow it. The caller holds mu.
func (s *state) put(key string, value []byte) error {
	old, there := s.values[key]
	grown := int64(len(value) - len(old))
	switch {
	case s.closed:
		return ErrClosed
	case len(value) > s.limits.ValueBytes:
		return kindf(ErrLimit, "a value of %d bytes; %d are allowed", len(value), s.limits.ValueBytes)
	case !there && len(s.values) >= s.limits.Keys:
		return kindf(ErrLimit, "more than %d keys", s.limits.Keys)
	case !there:
		grown += int64(len(key)) + entryBytes
	}
	if err := s.budget.take(grown); err != nil {
		return err
	}
	s.values[key] = value
	return nil
}

// wake counts a key as present for all requests that wait for it. The caller holds mu.
func (s *state) wake(key string) {
	list := s.waiters[key]
	delete(s.waiters, key)
	for _, w := range list {
		s.arrive(w)
	}
}

// arrive counts one of a waiter's keys as present. The caller holds mu.
func (s *state) arrive(w *waiter) {
	if w.missing--; w.missing == 0 {
		s.release(w)
		close(w.ready)
	}
}

// release returns a waiter's part of the limits. The caller holds mu.
func (s *state) release(w *waiter) {
	s.waiting--
	s.budget.release(w.bytes)
}

// wakeQueue counts a queue's name as present for requests that wait for it: for all that
// do not pop, and for the first one that may pop, because a pushed value serves one Pop
// only. The caller holds mu.
func (s *state) wakeQueue(key string) {
	popWoken := false
	list := slices.DeleteFunc(s.waiters[key], func(w *waiter) bool {
		if w.mayPop && popWoken {
			return false
		}
		popWoken = popWoken || w.mayPop
		s.arrive(w)
		return true
	})
	if len(list) == 0 {
		delete(s.waiters, key)
	} else {
		s.waiters[key] = list
	}
}

func (s *state) set(key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.put(key, value); err != nil {
		return err
	}
	s.wake(key)
	return nil
}

func (s *state) get(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key]
}

// compareAndSet sets a key whose value is expected, or that is missing if expected is
// empty. It returns the value that the key has then, or expected if the key is missing.
func (s *state) compareAndSet(key string, expected, desired []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, there := s.values[key]
	switch {
	case there && !bytes.Equal(value, expected):
		return value, nil
	case !there && len(expected) > 0:
		return expected, nil
	}
	if err := s.put(key, desired); err != nil {
		return nil, err
	}
	s.wake(key)
	return desired, nil
}

// count adds delta to the number at a key. The caller holds mu.
func (s *state) count(key string, delta int64) (int64, error) {
	if value, there := s.values[key]; there {
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return 0, kindf(ErrNumber, "key %q holds %d bytes of something else", shorten(key), len(value))
		}
		delta += n
	}
	return delta, s.put(key, strconv.AppendInt(nil, delta, 10))
}

func (s *state) add(key string, delta int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.count(key, delta)
	if err != nil {
		return 0, err
	}
	s.wake(key)
	return n, nil
}

func (s *state) append(key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// append may write behind the end of a value that a reader holds; the reader's slice
	// does not include those bytes.
	if err := s.put(key, append(s.values[key], value...)); err != nil {
		return err
	}
	s.wake(key)
	return nil
}

func (s *state) delete(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, there := s.values[key]
	if there {
		delete(s.values, key)
		s.budget.release(int64(len(key)+len(value)) + entryBytes)
	}
	return there
}

func (s *state) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.values))
}

func (s *state) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]string, 0, len(s.values))
	for k := range s.values {
		keys = append(keys, k)
	}
	return keys
}

// exists reports whether a key or a queue of this name exists. The caller holds mu.
func (s *state) exists(key string) bool {
	_, ok := s.values[key]
	return ok || len(s.queues[key]) > 0
}

func (s *state) check(keys []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(keys, func(k string) bool { return !s.exists(k) })
}

// wait returns nil if all keys exist, else a waiter for the missing ones. With mayPop
// the request may be part of a Pop.
func (s *state) wait(keys []string, mayPop bool) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := slices.DeleteFunc(slices.Clone(keys), s.exists)
	if len(missing) == 0 {
		return nil, nil
	}
	return s.addWaiter(missing, mayPop)
}

// addWaiter makes a waiter. It fails if a limit is exceeded or the state is closed. The
// caller holds mu.
func (s *state) addWaiter(keys []string, mayPop bool) (*waiter, error) {
	switch {
	case s.closed:
		return nil, ErrClosed
	case s.waiting >= s.limits.Waiting:
		return nil, kindf(ErrLimit, "more than %d waiting requests", s.limits.Waiting)
	}
	w := &waiter{keys: keys, missing: len(keys), mayPop: mayPop, ready: make(chan struct{})}
	for _, k := range keys {
		w.bytes += int64(len(k)) + entryBytes
	}
	if err := s.budget.take(w.bytes); err != nil {
		return nil, err
	}
	s.waiting++
	for _, k := range keys {
		s.waiters[k] = append(s.waiters[k], w)
	}
	return w, nil
}

// barrier counts one arrival. It returns nil if n have arrived, else a waiter.
func (s *state) barrier(key string, n int64) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, err := s.count(key, 1)
	if err != nil {
		return nil, err
	}
	if count >= n {
		s.wake(key)
		return nil, nil
	}
	return s.addWaiter([]string{key}, false)
}

// cancel ends a wait. It reports false if the wait was complete already.
func (s *state) cancel(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.missing == 0 {
		return false
	}
	for _, k := range w.keys {
		list := slices.DeleteFunc(s.waiters[k], func(other *waiter) bool { return other == w })
		if len(list) == 0 {
			delete(s.waiters, k)
		} else {
			s.waiters[k] = list
		}
	}
	w.missing, w.canceled = 0, true
	s.release(w)
	close(w.ready)
	return true
}

// await blocks until the wait ends or ctx does. A nil waiter does not block.
func (s *state) await(ctx context.Context, w *waiter) error {
	if w == nil {
		return nil
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		if s.cancel(w) {
			return ctx.Err()
		}
	}
	if w.canceled {
		return ErrClosed
	}
	return nil
}

// push appends a value to a queue and wakes requests that wait for the queue, at most one
// Pop. It fails if a limit is exceeded or the state is closed.
func (s *state) push(key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case len(value) > s.limits.ValueBytes:
		return kindf(ErrLimit, "a value of %d bytes; %d are allowed", len(value), s.limits.ValueBytes)
	case s.queued >= s.limits.Queued:
		return kindf(ErrLimit, "more than %d queued values", s.limits.Queued)
	}
	if err := s.budget.take(int64(len(key)+len(value)) + entryBytes); err != nil {
		return err
	}
	s.queues[key] = append(s.queues[key], value)
	s.queued++
	s.wakeQueue(key)
	return nil
}

// pop takes the first value of a queue. n is the length of the queue before.
func (s *state) pop(key string) (value []byte, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.queues[key]
	if len(list) == 0 {
		return nil, 0
	}
	if len(list) == 1 {
		delete(s.queues, key)
	} else {
		s.queues[key] = list[1:]
		s.wakeQueue(key)
	}
	s.queued--
	s.budget.release(int64(len(key)+len(list[0])) + entryBytes)
	return list[0], int64(len(list))
}

func (s *state) queueLen(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.queues[key]))
}

// rewake wakes another request for a queue that still holds a value, because w was woken
// for it and took none.
func (s *state) rewake(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range w.keys {
		if w.mayPop && len(s.queues[key]) > 0 {
			s.wakeQueue(key)
		}
	}
}

// close ends all waits, as cancelled.
func (s *state) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for key, list := range s.waiters {
		delete(s.waiters, key)
		for _, w := range list {
			if w.missing > 0 {
				w.missing, w.canceled = 1, true
				s.arrive(w)
			}
		}
	}
}
