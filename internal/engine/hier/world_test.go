package hier

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/transport/mem"
)

// A site is hosts in one process: it makes groups of their ranks, and passes
// failures and the leaders' positions on, as the control channel of a job does.
type site struct {
	kit

	mu    sync.Mutex
	crews map[string]*crew
	open  int // engines of the first group
	end   chan struct{}
}

// A kit is what groups are made of. The zero kit is right.
type kit struct {
	opt   Options
	local shm.Options
	host  func(k *kit, c *crew, host int) // makes the engines of one host's ranks
}

// A crew is what the ranks of one group have in common.
type crew struct {
	hosts   []int
	engines []*Engine // by rank; nil: not there yet
	cause   *engine.Failure

	local   []engine.Engine   // by rank
	all     []*mem.Mesh       // by rank
	leaders []*network.Engine // by rank; nil: leads nobody, or not there yet
	between map[int]*mem.Mesh
}

// hostsOf names hosts, given by any number for each rank, by their first ranks.
func hostsOf(places []int) []int {
	hosts := make([]int, len(places))
	for r, p := range places {
		hosts[r] = slices.Index(places, p)
	}
	return hosts
}

// crew returns the group of that name, and makes it for the first who asks.
func (s *site) crew(name string, places []int) *crew {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.crews[name]; c != nil {
		return c
	}
	n := len(places)
	c := &crew{
		hosts: hostsOf(places), engines: make([]*Engine, n), local: make([]engine.Engine, n),
		all: mem.New(n, mem.Options{}), leaders: make([]*network.Engine, n), between: make(map[int]*mem.Mesh),
	}
	l := newLayout(0, c.hosts)
	for h, m := range mem.New(len(l.leaders), mem.Options{}) {
		c.between[l.leaders[h]] = m
		s.host(&s.kit, c, l.leaders[h])
	}
	s.crews[name] = c
	return c
}

// ranks are those of a host.
func (c *crew) ranks(host int) (list []int) {
	for r, h := range c.hosts {
		if h == host {
			list = append(list, r)
		}
	}
	return list
}

// goroutines makes the ranks of a host goroutines of this process.
func goroutines(k *kit, c *crew, host int) {
	ranks := c.ranks(host)
	for i, e := range shm.NewLocal(len(ranks), k.local) {
		c.local[ranks[i]] = e
	}
}

// join makes one rank's side of a group. Places are the hosts of its ranks.
func (s *site) join(name string, places []int, rank int) *Engine {
	c := s.crew(name, places)
	all := c.all[rank]
	opt := s.opt
	opt.Rank, opt.Hosts, opt.Local = rank, c.hosts, c.local[rank]
	opt.All = network.New(all, network.Options{ParkingLot: all.ParkingLot(), Reproducible: opt.Reproducible})
	var leader *network.Engine
	if m := c.between[rank]; m != nil {
		leader = network.New(m, network.Options{ParkingLot: m.ParkingLot()})
		opt.Leaders = leader
	}
	var e *Engine
	opt.OnFail = func(f *engine.Failure) { s.spread(c, e, f) }
	opt.Sub = func(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
		var sub []int
		for _, r := range members {
			sub = append(sub, places[r])
		}
		return engine.Form(ctx, e, members, func(context.Context) (engine.Engine, error) {
			return s.join(fmt.Sprint(name, seq, members), sub, slices.Index(members, rank)), nil
		})
	}
	opt.Alloc = func(_ context.Context, _ uint64, bytes int) (*engine.Region, error) {
		words := make([]uint64, bytes/8+1)
		return &engine.Region{Ptr: unsafe.Pointer(&words[0]), Bytes: bytes, Free: func() error { return nil }}, nil
	}
	e = New(opt)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.engines[rank], c.leaders[rank] = e, leader
	if c.cause != nil {
		e.Fail(c.cause)
	}
	return e
}

// spread makes the first failure of a group everybody's. Goroutines share the
// failures of their host, so it may come from another rank than the one that it
// began on. That one will come, too, with what it saw.
func (s *site) spread(c *crew, from *Engine, f *engine.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.cause == nil {
		told := *f
		told.Told, told.Err = true, nil
		c.cause = &told
	}
	for _, e := range c.engines {
		switch {
		case e == nil:
		case e.Rank() != c.cause.Rank:
			e.Fail(c.cause)
		case e == from:
			own := *c.cause
			own.Err = f.Err
			e.Fail(&own)
		}
	}
}

// beat passes positions on until all ranks have left. No result depends on how
// often.
func (s *site) beat() {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.end:
			return
		case <-tick.C:
		}
		for _, leaders := range s.well() {
			for i, a := range leaders {
				for _, b := range leaders[:i] {
					a.CheckPosition(b.Rank(), b.Position())
					b.CheckPosition(a.Rank(), a.Position())
				}
			}
		}
	}
}

// well are the leaders of all groups that have not failed.
func (s *site) well() (list [][]*network.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.crews {
		if c.cause == nil {
			list = append(list, slices.DeleteFunc(slices.Clone(c.leaders), func(e *network.Engine) bool { return e == nil }))
		}
	}
	return list
}

// A member is an engine of the first group. The site ends with the last.
type member struct {
	*Engine
	s    *site
	once sync.Once
}

func (m *member) Close() error {
	m.once.Do(func() {
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		if m.s.open--; m.s.open == 0 {
			close(m.s.end)
		}
	})
	return m.Engine.Close()
}

// A placement puts ranks on hosts.
type placement func(rank int) (host int)

// inTurns has hosts of the given sizes, over and over.
func inTurns(sizes ...int) placement {
	return func(rank int) int {
		for host := 0; ; host++ {
			if rank -= sizes[host%len(sizes)]; rank < 0 {
				return host
			}
		}
	}
}

func roundRobin(hosts int) placement { return func(rank int) int { return rank % hosts } }

// world makes groups on a new site each.
func world(place placement, k kit) enginetest.World {
	return func(_ testing.TB, ranks int) []engine.Engine {
		s := &site{kit: k, crews: make(map[string]*crew), open: ranks, end: make(chan struct{})}
		if s.host == nil {
			s.host = goroutines
		}
		places := make([]int, ranks)
		for r := range places {
			places[r] = place(r)
		}
		engines := make([]engine.Engine, ranks)
		for r := range engines {
			engines[r] = &member{Engine: s.join("world", places, r), s: s}
		}
		go s.beat()
		return engines
	}
}
