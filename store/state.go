package store

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"sync"
)

// A state is what a store holds and who waits for it: all of its logic and no
// input or output. Keys are as on the wire. Values that are passed in belong to
// it from then on; those returned must not be changed.
type state struct {
	limits Limits
	budget *budget

	mu      sync.Mutex
	values  map[string][]byte
	queues  map[string][][]byte // none is empty
	queued  int
	waiters map[string][]*waiter
	waiting int
	closed  bool
}

// A waiter is a request that waits for keys.
type waiter struct {
	keys    []string
	missing int
	bytes   int64
	ready   chan struct{} // closed when it waits no longer
	// canceled, once ready is closed: not because all is there.
	canceled bool
}

// entryBytes is what an entry costs beside its key and value.
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

// put stores a value, if there is room. The caller holds the lock.
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

// wake tells those who wait for a key that it is there.
func (s *state) wake(key string) {
	list := s.waiters[key]
	delete(s.waiters, key)
	for _, w := range list {
		s.arrive(w)
	}
}

// arrive counts one of a waiter's keys as there.
func (s *state) arrive(w *waiter) {
	if w.missing--; w.missing == 0 {
		s.leave(w)
		close(w.ready)
	}
}

// leave gives back what a waiter holds.
func (s *state) leave(w *waiter) {
	s.waiting--
	s.budget.give(w.bytes)
}

// wakeOne tells one who waits that a queue holds something. Only one can have
// it.
func (s *state) wakeOne(key string) {
	list := s.waiters[key]
	if len(list) == 0 {
		return
	}
	if len(list) == 1 {
		delete(s.waiters, key)
	} else {
		s.waiters[key] = list[1:]
	}
	s.arrive(list[0])
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

// count adds to a number. The caller holds the lock.
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
	// Those who hold the old value see none of what comes after its end.
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
		s.budget.give(int64(len(key)+len(value)) + entryBytes)
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

func (s *state) there(key string) bool {
	_, ok := s.values[key]
	return ok || len(s.queues[key]) > 0
}

func (s *state) check(keys []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(keys, func(k string) bool { return !s.there(k) })
}

// wait returns nil if all keys are there, or else a waiter.
func (s *state) wait(keys []string) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := slices.DeleteFunc(slices.Clone(keys), s.there)
	if len(missing) == 0 {
		return nil, nil
	}
	return s.enlist(missing)
}

// enlist makes a waiter. The caller holds the lock.
func (s *state) enlist(keys []string) (*waiter, error) {
	switch {
	case s.closed:
		return nil, ErrClosed
	case s.waiting >= s.limits.Waiting:
		return nil, kindf(ErrLimit, "more than %d waiting requests", s.limits.Waiting)
	}
	w := &waiter{keys: keys, missing: len(keys), ready: make(chan struct{})}
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

// barrier counts a caller. It returns nil if n are there, or else a waiter.
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
	return s.enlist([]string{key})
}

// cancel ends a waiter. It reports false if all that it waits for had come.
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
	s.leave(w)
	close(w.ready)
	return true
}

// await waits for a waiter, which may be nil.
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
	s.wakeOne(key)
	return nil
}

// pop takes a queue's first value. n is how many there were before.
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
		s.wakeOne(key)
	}
	s.queued--
	s.budget.give(int64(len(key)+len(list[0])) + entryBytes)
	return list[0], int64(len(list))
}

func (s *state) queueLen(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.queues[key]))
}

// rewake passes on what queues hold: somebody who was woken for it may have
// left without taking it.
func (s *state) rewake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.waiters {
		if len(s.queues[key]) > 0 {
			s.wakeOne(key)
		}
	}
}

// close ends all waiters.
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
