package store

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// A Memory is a [Store] in this process. It behaves as a server with its clients.
type Memory struct{ s *state }

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store. The limits on connections have no effect.
func NewMemory(limits Limits) *Memory { return &Memory{newState(limits)} }

// Close ends all waiting calls with ErrClosed. Further calls of Close do nothing.
func (m *Memory) Close() error {
	m.s.close()
	return nil
}

func (m *Memory) fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Key: key, Cause: err}
}

// check checks the context and the limits before a call.
func (m *Memory) check(ctx context.Context, op string, keys ...string) error {
	key := ""
	if len(keys) > 0 {
		key = keys[0]
	}
	if err := ctx.Err(); err != nil {
		return m.fail(op, key, err)
	}
	return m.fail(op, key, m.s.limits.checkRequest(keys, nil))
}

// Set implements [Store].
func (m *Memory) Set(ctx context.Context, key string, value []byte) error {
	if err := m.check(ctx, "Set", key); err != nil {
		return err
	}
	return m.fail("Set", key, m.s.set(userPrefix+key, bytes.Clone(value)))
}

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, key string) ([]byte, error) {
	if err := m.wait(ctx, "Get", key); err != nil {
		return nil, err
	}
	return bytes.Clone(m.s.get(userPrefix + key)), nil
}

// Add implements [Store].
func (m *Memory) Add(ctx context.Context, key string, delta int64) (int64, error) {
	if err := m.check(ctx, "Add", key); err != nil {
		return 0, err
	}
	n, err := m.s.add(userPrefix+key, delta)
	return n, m.fail("Add", key, err)
}

// CompareAndSet implements [Store].
func (m *Memory) CompareAndSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	if err := m.check(ctx, "CompareAndSet", key); err != nil {
		return nil, err
	}
	value, err := m.s.compareAndSet(userPrefix+key, expected, bytes.Clone(desired))
	return bytes.Clone(value), m.fail("CompareAndSet", key, err)
}

// Wait implements [Store].
func (m *Memory) Wait(ctx context.Context, keys ...string) error { return m.wait(ctx, "Wait", keys...) }

func (m *Memory) wait(ctx context.Context, op string, keys ...string) error {
	if err := m.check(ctx, op, keys...); err != nil {
		return err
	}
	w, err := m.s.wait(userKeys(keys), op == "Pop")
	if err == nil {
		err = m.s.await(ctx, w)
	}
	return m.fail(op, first(keys), err)
}

// first returns the first key, or "".
func first(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

// Check implements [Store].
func (m *Memory) Check(ctx context.Context, keys ...string) (bool, error) {
	if err := m.check(ctx, "Check", keys...); err != nil {
		return false, err
	}
	return m.s.check(userKeys(keys)), nil
}

// Append implements [Store].
func (m *Memory) Append(ctx context.Context, key string, value []byte) error {
	if err := m.check(ctx, "Append", key); err != nil {
		return err
	}
	return m.fail("Append", key, m.s.append(userPrefix+key, value))
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, key string) (bool, error) {
	if err := m.check(ctx, "Delete", key); err != nil {
		return false, err
	}
	return m.s.delete(userPrefix + key), nil
}

// MultiGet implements [Store].
func (m *Memory) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	if err := m.wait(ctx, "MultiGet", keys...); err != nil {
		return nil, err
	}
	values := make([][]byte, len(keys))
	for i, k := range keys {
		values[i] = bytes.Clone(m.s.get(userPrefix + k))
	}
	return values, nil
}

// MultiSet implements [Store].
func (m *Memory) MultiSet(ctx context.Context, pairs ...Pair) error {
	for _, p := range pairs {
		if err := m.check(ctx, "MultiSet", p.Key); err != nil {
			return err
		}
		if err := m.s.set(userPrefix+p.Key, bytes.Clone(p.Value)); err != nil {
			return m.fail("MultiSet", p.Key, err)
		}
	}
	return nil
}

// List implements [Store].
func (m *Memory) List(ctx context.Context) ([]string, error) {
	if err := m.check(ctx, "List"); err != nil {
		return nil, err
	}
	return within(m.s.list(), userPrefix), nil
}

// within returns the keys that begin with prefix, and cuts the prefix off. It
// overwrites keys.
func within(keys []string, prefix string) []string {
	inside := keys[:0]
	for _, k := range keys {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			inside = append(inside, rest)
		}
	}
	return inside
}

// NumKeys implements [Store].
func (m *Memory) NumKeys(ctx context.Context) (int64, error) {
	if err := m.check(ctx, "NumKeys"); err != nil {
		return 0, err
	}
	return m.s.size(), nil
}

// Barrier implements [Store].
func (m *Memory) Barrier(ctx context.Context, key string, n int) error {
	if err := m.check(ctx, "Barrier", key); err != nil {
		return err
	}
	w, err := m.s.barrier(userPrefix+key, int64(n))
	if err == nil {
		err = m.s.await(ctx, w)
	}
	return m.fail("Barrier", key, err)
}

// Push implements [Store].
func (m *Memory) Push(ctx context.Context, key string, value []byte) error {
	if err := m.check(ctx, "Push", key); err != nil {
		return err
	}
	return m.fail("Push", key, m.s.push(userPrefix+key, bytes.Clone(value)))
}

// Pop implements [Store].
func (m *Memory) Pop(ctx context.Context, key string) ([]byte, error) {
	return popLoop(ctx, func() ([]byte, error) {
		if err := m.wait(ctx, "Pop", key); err != nil {
			return nil, err
		}
		value, n := m.s.pop(userPrefix + key)
		if n == 0 {
			return nil, ErrEmpty
		}
		return value, nil
	})
}

// popLoop calls pop until the queue holds a value or the context ends. A woken caller
// may find the queue empty, because another caller took the value. It pauses between
// calls because a key with the queue's name makes Wait return at once.
func popLoop(ctx context.Context, pop func() ([]byte, error)) ([]byte, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		value, err := pop()
		if !errors.Is(err, ErrEmpty) {
			return value, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// TryPop implements [Store].
func (m *Memory) TryPop(ctx context.Context, key string) ([]byte, error) {
	if err := m.check(ctx, "TryPop", key); err != nil {
		return nil, err
	}
	value, n := m.s.pop(userPrefix + key)
	if n == 0 {
		return nil, m.fail("TryPop", key, ErrEmpty)
	}
	return value, nil
}

// QueueLen implements [Store].
func (m *Memory) QueueLen(ctx context.Context, key string) (int64, error) {
	if err := m.check(ctx, "QueueLen", key); err != nil {
		return 0, err
	}
	return m.s.queueLen(userPrefix + key), nil
}

// Members returns how many members of a PyTorch job have joined, as counted by
// [Client.CountIn].
func (m *Memory) Members() int64 {
	n, _ := strconv.ParseInt(string(m.s.get(memberKey)), 10, 64)
	return n
}
