package network

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/transport/mem"
)

// control passes failures and positions between ranks in memory, as a control
// channel does on a network. It runs until all ranks of the first group have left.
type control struct {
	mu     sync.Mutex        // also guards the fields of the groups
	groups map[string]*group // by name; guarded by mu
	left   int               // ranks that have not left; guarded by mu
	end    chan struct{}     // closed when left is zero
}

// A group is the ranks among which a failure is passed on.
type group struct {
	members []*Engine // by rank; nil: has not joined yet
	cause   *engine.Failure
}

// heartbeat is the interval at which positions are passed on. No result depends on
// it.
const heartbeat = 2 * time.Millisecond

func newControl(ranks int) *control {
	c := &control{groups: make(map[string]*group), left: ranks, end: make(chan struct{})}
	go c.run()
	return c
}

func (c *control) run() {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-c.end:
			return
		case <-tick.C:
		}
		for _, members := range c.running() {
			exchangePositions(members)
		}
	}
}

// running returns the members of all groups that have not failed.
func (c *control) running() (list [][]*Engine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.groups {
		if g.cause == nil {
			list = append(list, slices.Clone(g.members))
		}
	}
	return list
}

// exchangePositions passes the position of every rank to every other rank.
func exchangePositions(members []*Engine) {
	for from, a := range members {
		for _, b := range members {
			if a != nil && b != nil && a != b {
				b.CheckPosition(from, a.Position())
			}
		}
	}
}

// propagate makes the first failure of a group the cause on all its ranks. The rank on which the failure
// began keeps its own copy. It runs on the goroutine of the failed rank; c.mu guards the cause and is held
// while the other ranks' engines fail.
func (c *control) propagate(g *group, from *Engine, f *engine.Failure) {
	told := *f
	told.Told, told.Err = true, nil
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.cause != nil {
		from.Fail(g.cause)
		return
	}
	g.cause = &told
	for _, e := range g.members {
		if e != nil && e != from {
			e.Fail(g.cause)
		}
	}
}

// join creates one rank's engine in a group and registers it under c.mu. Its Sub makes subgroups by join. If
// the group has already failed, the engine fails at once.
func (c *control) join(m *mem.Mesh, name string, opt Options) *Engine {
	c.mu.Lock()
	g := c.groups[name]
	if g == nil {
		g = &group{members: make([]*Engine, m.Size())}
		c.groups[name] = g
	}
	c.mu.Unlock()

	base := opt
	var e *Engine
	opt.ParkingLot = m.ParkingLot()
	opt.OnFail = func(f *engine.Failure) { c.propagate(g, e, f) }
	opt.Sub = func(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
		return engine.Form(ctx, e, members, func(context.Context) (engine.Engine, error) {
			sub, err := m.Sub(seq, members)
			if err != nil {
				return nil, err
			}
			return c.join(sub, fmt.Sprintf("%s/%d:%v", name, seq, members), base), nil
		})
	}
	e = New(m, opt)

	c.mu.Lock()
	defer c.mu.Unlock()
	g.members[m.Rank()] = e
	if g.cause != nil {
		e.Fail(g.cause)
	}
	return e
}

// A member is an engine of the first group. Its Close notifies the control.
type member struct {
	*Engine
	c    *control
	once sync.Once
}

func (m *member) Close() error {
	m.once.Do(func() {
		m.c.mu.Lock()
		defer m.c.mu.Unlock()
		if m.c.left--; m.c.left == 0 {
			close(m.c.end)
		}
	})
	return m.Engine.Close()
}

// world returns a function that makes groups in memory.
func world(opt Options, net mem.Options) enginetest.World {
	return func(_ testing.TB, ranks int) []engine.Engine {
		return newWorld(net, slices.Repeat([]Options{opt}, ranks)...)
	}
}

// newWorld makes one group, with options for every rank.
func newWorld(net mem.Options, opts ...Options) []engine.Engine {
	c := newControl(len(opts))
	engines := make([]engine.Engine, len(opts))
	for i, m := range mem.New(len(opts), net) {
		engines[i] = &member{Engine: c.join(m, "world", opts[i]), c: c}
	}
	return engines
}
