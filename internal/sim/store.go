package sim

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/wait"
	"github.com/tutti-go/tutti/store"
)

// A storeServer is the job's store, on a host of its own that never fails. It
// serves requests one after the other. Requests and answers are sent over the
// simulated network.
type storeServer struct {
	w       *World
	at      *proc
	memory  *store.Memory
	waiting []*storeRequest // requests that wait for a key
}

// A storeRequest is a request of a client.
type storeRequest struct {
	c         *client
	ready     func() bool // nil: always ready
	serve     func()
	answered  atomic.Uint64
	abandoned bool // the client does not wait any more
}

// A client is a process's connection to the store server.
type client struct {
	a        *storeServer
	p        *proc
	lot      *wait.ParkingLot
	up, down lane
	broken   bool // the connection is about to end; the next request makes a new one
}

var _ store.Store = (*client)(nil)

func newStoreServer(w *World) *storeServer {
	return &storeServer{
		w: w, at: &proc{w: w, rank: len(w.procs)}, memory: store.NewMemory(store.Limits{}),
	}
}

// Store returns this rank's client of the job's store.
func (s *Rank) Store() store.Store {
	p := s.p
	if p.store == nil {
		a := p.w.store
		p.store = &client{
			a: a, p: p, lot: wait.NewScheduledParkingLot(p), up: lane{from: p, to: a.at}, down: lane{from: a.at, to: p},
		}
	}
	return p.store
}

// requestBytes is the approximate size of a request or an answer on the network.
const requestBytes = 100

// request asks the store server to call serve when ready returns true, and waits
// for the answer.
func request[T any](ctx context.Context, c *client, ready func() bool, serve func(m *store.Memory) (T, error)) (T, error) {
	var answer struct {
		value T
		err   error
	}
	err := c.ask(ctx, &storeRequest{c: c, ready: ready, serve: func() { answer.value, answer.err = serve(c.a.memory) }})
	if err != nil {
		return *new(T), err
	}
	return answer.value, answer.err
}

// ask sends a request and parks the calling task until the answer arrives or ctx
// ends. The server forgets an abandoned request that still waits for a key. If a
// fault has cut the connection, ask returns errCut; the server may serve the
// request nevertheless.
func (c *client) ask(ctx context.Context, x *storeRequest) error {
	c.p.checkpoint()
	if err := ctx.Err(); err != nil {
		return err
	}
	c.a.w.s.log.note(c.a.w.s.now, "ask", c.p.rank, 0, 0)
	sent := c.p.beforeSend(c.a.at)
	broken := c.broken
	c.broken = false
	if sent && (!broken || c.a.w.net.rnd.IntN(2) == 0) {
		c.a.w.net.send(&c.up, requestBytes, func() { c.a.take(x) })
	}
	c.p.checkpoint()
	if broken { // it is not known whether the request is served
		x.abandoned = true
		return errCut
	}
	w := wait.NewWaiter(c.lot)
	w.Begin(ctx, 0)
	_, err := w.AtLeast(&x.answered, 1, nil)
	w.End()
	x.abandoned = err != nil
	return err
}

// take serves a request that has arrived, now or when it is ready. It runs in an
// event of the simulator.
func (a *storeServer) take(x *storeRequest) {
	if x.ready != nil && !x.ready() {
		a.waiting = append(a.waiting, x)
		return
	}
	a.answer(x)
	// The request may have made others ready.
	for i := 0; i < len(a.waiting); {
		switch y := a.waiting[i]; {
		case y.abandoned || y.c.p.dead:
			a.waiting = slices.Delete(a.waiting, i, i+1)
		case y.ready():
			a.waiting = slices.Delete(a.waiting, i, i+1)
			a.answer(y)
			i = 0
		default:
			i++
		}
	}
}

func (a *storeServer) answer(x *storeRequest) {
	x.serve()
	a.w.net.send(&x.c.down, requestBytes, func() {
		x.answered.Store(1)
		x.c.lot.Wake(&x.answered)
	})
}

// now is the context of requests that do not wait.
var now = context.Background()

func (c *client) do(ctx context.Context, serve func(m *store.Memory) error) error {
	_, err := request(ctx, c, nil, func(m *store.Memory) (struct{}, error) { return struct{}{}, serve(m) })
	return err
}

// present returns a function that reports whether keys are in the store.
func (c *client) present(keys ...string) func() bool {
	return func() bool {
		ok, err := c.a.memory.Check(now, keys...)
		return ok || err != nil
	}
}

// Await is Get with a time limit; see package agree.
func (c *client) Await(ctx context.Context, key string, most time.Duration) ([]byte, error) {
	short, cancel := c.p.WithTimeout(ctx, most)
	defer cancel()
	value, err := c.Get(short, key)
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return nil, nil
	}
	return value, err
}

// Create sets a key unless it has a value; see package agree.
func (c *client) Create(ctx context.Context, key string, value []byte) ([]byte, error) {
	return c.CompareAndSet(ctx, key, nil, value)
}

// Set implements [store.Store], like the methods below.
func (c *client) Set(ctx context.Context, key string, value []byte) error {
	value = slices.Clone(value)
	return c.do(ctx, func(m *store.Memory) error { return m.Set(now, key, value) })
}

// Append appends to a key's value.
func (c *client) Append(ctx context.Context, key string, value []byte) error {
	value = slices.Clone(value)
	return c.do(ctx, func(m *store.Memory) error { return m.Append(now, key, value) })
}

// MultiSet sets several keys.
func (c *client) MultiSet(ctx context.Context, pairs ...store.Pair) error {
	pairs = slices.Clone(pairs)
	for i := range pairs {
		pairs[i].Value = slices.Clone(pairs[i].Value)
	}
	return c.do(ctx, func(m *store.Memory) error { return m.MultiSet(now, pairs...) })
}

// Push appends to a queue.
func (c *client) Push(ctx context.Context, key string, value []byte) error {
	value = slices.Clone(value)
	return c.do(ctx, func(m *store.Memory) error { return m.Push(now, key, value) })
}

// Get waits until a key exists.
func (c *client) Get(ctx context.Context, key string) ([]byte, error) {
	return request(ctx, c, c.present(key), func(m *store.Memory) ([]byte, error) { return m.Get(now, key) })
}

// Wait waits until keys exist.
func (c *client) Wait(ctx context.Context, keys ...string) error {
	_, err := request(ctx, c, c.present(keys...), func(m *store.Memory) (bool, error) { return m.Check(now, keys...) })
	return err
}

// MultiGet waits until keys exist.
func (c *client) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	return request(ctx, c, c.present(keys...), func(m *store.Memory) ([][]byte, error) { return m.MultiGet(now, keys...) })
}

// Pop waits until a queue has a value.
func (c *client) Pop(ctx context.Context, key string) ([]byte, error) {
	holds := func() bool {
		n, err := c.a.memory.QueueLen(now, key)
		return n > 0 || err != nil
	}
	return request(ctx, c, holds, func(m *store.Memory) ([]byte, error) { return m.TryPop(now, key) })
}

// Barrier waits until n clients have called it.
func (c *client) Barrier(ctx context.Context, key string, n int) error {
	if _, err := c.Add(ctx, key, 1); err != nil {
		return err
	}
	all := func() bool {
		came, err := c.a.memory.Add(now, key, 0)
		return came >= int64(n) || err != nil
	}
	_, err := request(ctx, c, all, func(m *store.Memory) (int64, error) { return m.Add(now, key, 0) })
	return err
}

// Add adds to a number.
func (c *client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return request(ctx, c, nil, func(m *store.Memory) (int64, error) { return m.Add(now, key, delta) })
}

// CompareAndSet sets a key that has an expected value.
func (c *client) CompareAndSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	expected, desired = slices.Clone(expected), slices.Clone(desired)
	return request(ctx, c, nil, func(m *store.Memory) ([]byte, error) {
		if c.a.w.opt.Broken {
			return desired, m.Set(now, key, desired)
		}
		return m.CompareAndSet(now, key, expected, desired)
	})
}

// Check reports whether keys exist.
func (c *client) Check(ctx context.Context, keys ...string) (bool, error) {
	return request(ctx, c, nil, func(m *store.Memory) (bool, error) { return m.Check(now, keys...) })
}

// Delete removes a key.
func (c *client) Delete(ctx context.Context, key string) (bool, error) {
	return request(ctx, c, nil, func(m *store.Memory) (bool, error) { return m.Delete(now, key) })
}

// List returns the keys.
func (c *client) List(ctx context.Context) ([]string, error) {
	return request(ctx, c, nil, func(m *store.Memory) ([]string, error) {
		keys, err := m.List(now)
		slices.Sort(keys) // a run must depend only on its seed
		return keys, err
	})
}

// NumKeys returns the number of keys.
func (c *client) NumKeys(ctx context.Context) (int64, error) {
	return request(ctx, c, nil, func(m *store.Memory) (int64, error) { return m.NumKeys(now) })
}

// TryPop takes a queue's first value, if there is one.
func (c *client) TryPop(ctx context.Context, key string) ([]byte, error) {
	return request(ctx, c, nil, func(m *store.Memory) ([]byte, error) { return m.TryPop(now, key) })
}

// QueueLen returns the number of values in a queue.
func (c *client) QueueLen(ctx context.Context, key string) (int64, error) {
	return request(ctx, c, nil, func(m *store.Memory) (int64, error) { return m.QueueLen(now, key) })
}
