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

// A cluster simulates hosts in one process. It forms groups of ranks, and forwards failures and
// the leaders' positions, as the control channel of a job does.
type cluster struct {
	groupConfig

	mu     sync.Mutex
	groups map[string]*group // by name; guarded by mu
	open   int               // engines of the first group that are not closed; guarded by mu
	end    chan struct{}     // closed when open is zero
}

// A groupConfig holds the options of groups. The zero value is usable.
type groupConfig struct {
	opt   Options
	local shm.Options
	host  func(k *groupConfig, c *group, host int) // makes the engines of one host's ranks
}

// A group is the state that the ranks of one group share. Guarded by cluster.mu.
type group struct {
	hosts   []int
	engines []*Engine       // by rank; nil: not joined yet; guarded by cluster.mu
	cause   *engine.Failure // first failure; guarded by cluster.mu

	local   []engine.Engine   // by rank
	all     []*mem.Mesh       // by rank
	leaders []*network.Engine // by rank; nil: no leader, or not joined yet; guarded by cluster.mu
	between map[int]*mem.Mesh
}

// hostsOf returns Options.Hosts for ranks on the given hosts, which have any numbers.
func hostsOf(hostOf []int) []int {
	hosts := make([]int, len(hostOf))
	for r, p := range hostOf {
		hosts[r] = slices.Index(hostOf, p)
	}
	return hosts
}

// group returns the group with that name. The first call creates it. s.mu guards s.groups; a rank's goroutine
// writes only its own elements of the group's lists, in join.
func (s *cluster) group(name string, hostOf []int) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.groups[name]; c != nil {
		return c
	}
	n := len(hostOf)
	c := &group{
		hosts: hostsOf(hostOf), engines: make([]*Engine, n), local: make([]engine.Engine, n),
		all: mem.New(n, mem.Options{}), leaders: make([]*network.Engine, n), between: make(map[int]*mem.Mesh),
	}
	l := newLayout(0, c.hosts)
	for h, m := range mem.New(len(l.leaders), mem.Options{}) {
		c.between[l.leaders[h]] = m
		s.host(&s.groupConfig, c, l.leaders[h])
	}
	s.groups[name] = c
	return c
}

// ranks returns the ranks of a host.
func (c *group) ranks(host int) (list []int) {
	for r, h := range c.hosts {
		if h == host {
			list = append(list, r)
		}
	}
	return list
}

// goroutines makes the engines of a host's ranks as goroutines of this process.
func goroutines(k *groupConfig, c *group, host int) {
	ranks := c.ranks(host)
	for i, e := range shm.NewLocal(len(ranks), k.local) {
		c.local[ranks[i]] = e
	}
}

// join makes one rank's engine of a group and registers it under s.mu. If the group has already failed, the
// engine fails at once. hostOf holds the host of each rank.
func (s *cluster) join(name string, hostOf []int, rank int) *Engine {
	c := s.group(name, hostOf)
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
	opt.OnFail = func(f *engine.Failure) { s.shareFailure(c, e, f) }
	opt.Sub = func(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
		var sub []int
		for _, r := range members {
			sub = append(sub, hostOf[r])
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

// shareFailure ends all engines of a group with its first failure. Goroutines share the
// failures of their host, so another rank than the one where it began may report it. The rank
// where it began reports it, too, with its own Err.
func (s *cluster) shareFailure(c *group, from *Engine, f *engine.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.cause == nil {
		shared := *f
		shared.Told, shared.Err = true, nil
		c.cause = &shared
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

// exchangePositions forwards the leaders' positions until all ranks have closed their engines, on a goroutine
// of its own. No result depends on the interval.
func (s *cluster) exchangePositions() {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.end:
			return
		case <-tick.C:
		}
		for _, leaders := range s.liveLeaders() {
			for i, a := range leaders {
				for _, b := range leaders[:i] {
					a.CheckPosition(b.Rank(), b.Position())
					b.CheckPosition(a.Rank(), a.Position())
				}
			}
		}
	}
}

// liveLeaders returns the leaders of all groups that have not failed.
func (s *cluster) liveLeaders() (list [][]*network.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.groups {
		if c.cause == nil {
			list = append(list, slices.DeleteFunc(slices.Clone(c.leaders), func(e *network.Engine) bool { return e == nil }))
		}
	}
	return list
}

// A member is an engine of the first group. Closing the last member ends exchangePositions.
type member struct {
	*Engine
	s    *cluster
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

// A placement returns the host of a rank.
type placement func(rank int) (host int)

// hostSizes places consecutive ranks on hosts of the given sizes, which repeat.
func hostSizes(sizes ...int) placement {
	return func(rank int) int {
		for host := 0; ; host++ {
			if rank -= sizes[host%len(sizes)]; rank < 0 {
				return host
			}
		}
	}
}

// roundRobin places rank r on host r modulo the number of hosts.
func roundRobin(hosts int) placement { return func(rank int) int { return rank % hosts } }

// world makes each group in a new cluster, with ranks placed on hosts by place. A goroutine exchanges the
// leaders' positions until all ranks of the first group are closed.
func world(place placement, k groupConfig) enginetest.World {
	return func(_ testing.TB, ranks int) []engine.Engine {
		s := &cluster{groupConfig: k, groups: make(map[string]*group), open: ranks, end: make(chan struct{})}
		if s.host == nil {
			s.host = goroutines
		}
		hostOf := make([]int, ranks)
		for r := range hostOf {
			hostOf[r] = place(r)
		}
		engines := make([]engine.Engine, ranks)
		for r := range engines {
			engines[r] = &member{Engine: s.join("world", hostOf, r), s: s}
		}
		go s.exchangePositions()
		return engines
	}
}
