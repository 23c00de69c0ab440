package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/proctest"
)

// TestRandomFailures runs the channel of 2 to 7 ranks many times in virtual time, over connections
// with random delays. Ranks report failures of two groups at about the same time, some before other
// ranks have formed the group. One rank is killed when it writes a random frame. Ranks that are
// notified leave at once or later. All surviving ranks must be notified in time of the same cause.
func TestRandomFailures(t *testing.T) {
	seeds := 600
	switch {
	case proctest.Heavy(t):
		seeds = 20_000
	case testing.Short():
		seeds = 100
	}
	runScenarios(t, seeds, nil)
}

// TestRandomFailuresEncrypted runs fewer scenarios over TLS, which writes in other pieces.
func TestRandomFailuresEncrypted(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 20
	}
	runScenarios(t, seeds, newTLS)
}

// runScenarios runs each seed without and with a death, over TLS if encrypt is not nil. A violation
// fails the test at once. At the end every kind of event must have happened often enough.
func runScenarios(t *testing.T, seeds int, encrypt func(testing.TB) *tls.Config) {
	var seen struct{ crashed, vanished, first, lost, reported, unjoined int }
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			var config *tls.Config
			if encrypt != nil {
				config = encrypt(t) // inside the bubble, which has its own time
			}
			newStorm := func(seed uint64) *scenario {
				s := newStorm(seed)
				s.tls = config
				return s
			}
			calm := newStorm(seed)
			calm.run()
			if err := calm.check(); err != nil {
				t.Fatalf("seed %d, without a death: %v", seed, err)
			}
			s := newStorm(seed)
			s.kill(calm)
			s.run()
			if err := s.check(); err != nil {
				t.Fatalf("seed %d, %d ranks, rank %d dies at write %d (vanishes: %v): %v",
					seed, s.size, s.victim, s.hosts[s.victim].fails, s.hosts[s.victim].vanish, err)
			}
			switch h := s.hosts[s.victim]; {
			case !h.dead:
			case h.vanish:
				seen.vanished++
			default:
				seen.crashed++
			}
			if s.hosts[0].dead {
				seen.first++
			}
			for _, e := range s.ends {
				if e.join != nil {
					seen.unjoined++
				}
				for g := range e.groups {
					switch f := e.groups[g].cause.Load(); {
					case f == nil:
					case f.Kind == engine.ErrRankLost:
						seen.lost++
					default:
						seen.reported++
					}
				}
			}
		})
	}
	t.Logf("%d seeds: %+v", seeds, seen)
	if seen.crashed+seen.vanished < seeds*9/10 {
		t.Errorf("only %d ranks died in %d seeds", seen.crashed+seen.vanished, seeds)
	}
	for what, n := range map[string]int{
		"crash": seen.crashed, "vanish": seen.vanished, "death of rank 0": seen.first, "loss": seen.lost,
		"report": seen.reported, "death while joining": seen.unjoined,
	} {
		if n < seeds/20 {
			t.Errorf("only %d times: %s", n, what)
		}
	}
}

// A scenario is one run.
type scenario struct {
	tls       *tls.Config
	seed      uint64
	rnd       *rand.Rand
	size      int
	groups    [2][]int // all ranks, and some of them
	reporters [2][]int // by group: the ranks in the group that report a failure
	hosts     []*virtualHost
	ends      []*rankResult
	victim    int
	began     time.Time
}

// A rankResult is what a rank was notified of.
type rankResult struct {
	join, gather, close error
	groups              [2]rankGroup
}

// A rankGroup is a rank's side of a group.
type rankGroup struct {
	cause engine.Cause
	told  time.Time
	once  sync.Once
	ended chan struct{}
}

func (g *rankGroup) stop() {
	g.once.Do(func() {
		g.told = time.Now()
		close(g.ended)
	})
}

func (g *rankGroup) fail(f *engine.Failure) { _ = g.cause.Take(f, nil, g.stop) }

const (
	scenarioHostTimeout = 30 * time.Second
	stormJoin           = 20 * time.Second
	scenarioEnd         = 100 * time.Second // ranks without a notification leave then
)

// newStorm draws a scenario, in which no rank dies before kill is called.
func newStorm(seed uint64) *scenario {
	rnd := rand.New(rand.NewPCG(seed, 1))
	s := &scenario{seed: seed, rnd: rnd, size: 2 + rnd.IntN(6), victim: -1}
	for r := range s.size {
		s.groups[0] = append(s.groups[0], r)
		if rnd.IntN(2) == 0 {
			s.groups[1] = append(s.groups[1], r)
		}
		e := new(rankResult)
		for g := range e.groups {
			e.groups[g].ended = make(chan struct{})
		}
		s.hosts, s.ends = append(s.hosts, &virtualHost{fails: -1, hostTimeout: scenarioHostTimeout}), append(s.ends, e)
	}
	for g, members := range s.groups {
		for range rnd.IntN(3) {
			if len(members) > 0 {
				s.reporters[g] = append(s.reporters[g], rnd.IntN(len(members)))
			}
		}
	}
	return s
}

// kill makes a rank die at a write that it performed in an earlier run without a kill.
func (s *scenario) kill(calm *scenario) {
	s.victim = s.rnd.IntN(s.size)
	h := s.hosts[s.victim]
	h.fails = s.rnd.IntN(calm.hosts[s.victim].written)
	h.vanish, h.sendsLast = s.rnd.IntN(3) == 0, s.rnd.IntN(2) == 0
}

// run runs all ranks.
func (s *scenario) run() {
	s.began = time.Now()
	g := &virtualListener{arrive: make(chan net.Conn, s.size), shut: make(chan struct{})}
	s.hosts[0].listener = g
	var ranks sync.WaitGroup
	for r := range s.size {
		rnd := rand.New(rand.NewPCG(s.seed, 100+uint64(r)))
		ranks.Go(func() { s.rank(r, rnd, g) })
	}
	ranks.Wait()
	g.Close()
	time.Sleep(2 * scenarioHostTimeout) // remaining goroutines end
}

// rank runs one rank in a goroutine of its own, which alone sets the errors of s.ends[r]. If the
// rank cannot join, it ends at once.
func (s *scenario) rank(r int, rnd *rand.Rand, g *virtualListener) {
	e := s.ends[r]
	ctx, cancel := context.WithTimeout(context.Background(), stormJoin)
	defer cancel()
	m := newMember(Config{
		HostTimeout: 24 * time.Hour, // no heartbeats, so that the kill happens at another frame
		Rank:        r, Size: s.size, Listener: g, Secret: []byte("secret"), TLS: s.tls, Blob: []byte{byte(r)}, Logger: slog.New(slog.DiscardHandler),
	})
	time.Sleep(time.Duration(rnd.IntN(5000)) * time.Microsecond)
	if r == 0 {
		e.join = m.serveJoin(ctx)
	} else {
		e.join = m.joinOver(ctx, s.connect(r, g))
	}
	if e.join != nil {
		return
	}
	s.serve(r, rnd, m, e)
	ctx, cancel = context.WithTimeout(context.Background(), stormJoin)
	defer cancel()
	e.close = m.Close(ctx)
}

// connect connects a rank with rank 0, and returns the rank's side. The side of a dead host is
// closed.
func (s *scenario) connect(r int, g *virtualListener) net.Conn {
	up, down := newVirtualPipe(s.seed, 200+uint64(r)), newVirtualPipe(s.seed, 300+uint64(r))
	near := &virtualConn{out: up, in: down, owner: s.hosts[r]}
	far := &virtualConn{out: down, in: up, owner: s.hosts[0]}
	for _, c := range []*virtualConn{near, far} {
		c.owner.mu.Lock()
		c.owner.conns = append(c.owner.conns, c)
		if c.owner.dead {
			c.out.finish(net.ErrClosed, false)
			c.in.closeReader()
		}
		c.owner.mu.Unlock()
	}
	g.arrive <- far
	return near
}

// serve acts for a rank until its groups have ended, or for scenarioEnd. It records the error of
// Gather in e.
func (s *scenario) serve(r int, rnd *rand.Rand, m *Member, e *rankResult) {
	m.Watch("world", s.groups[0], e.groups[0].fail)
	ctx, cancel := context.WithTimeout(context.Background(), stormJoin)
	defer cancel()
	blobs, err := m.Gather(ctx, "gather", s.groups[0], []byte{byte(10 * r)})
	for i, b := range blobs {
		if len(b) != 1 || int(b[0]) != 10*i {
			err = fmt.Errorf("rank %d gave %v", i, b)
		}
	}
	e.gather = err
	pause := func() { time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond) }
	for range rnd.IntN(3) {
		pause()
		m.SendPosition("world", s.groups[0], []byte{byte(rnd.IntN(3))})
	}
	pause()
	if slices.Contains(s.groups[1], r) {
		m.Watch("world/1.0", s.groups[1], e.groups[1].fail)
	}
	for g, name := range []string{"world", "world/1.0"} {
		number := slices.Index(s.groups[g], r)
		if !slices.Contains(s.reporters[g], number) {
			continue
		}
		pause()
		f := &engine.Failure{Kind: engine.ErrAborted, Rank: number, Facts: engine.Facts{Text: fmt.Sprint("so says rank ", number)}}
		_ = e.groups[g].cause.Take(f, func(f *engine.Failure) {
			if first := m.Report(name, f); first != f {
				e.groups[g].fail(first)
			}
		}, e.groups[g].stop)
	}
	over := time.After(scenarioEnd)
	for g := range e.groups {
		select {
		case <-e.groups[g].ended:
		case <-over:
			return
		}
	}
	if rnd.IntN(2) == 0 {
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
	}
}

// check compares the results of the ranks and returns the first violation. It is called when run
// has returned.
func (s *scenario) check() error {
	var v *virtualHost
	if s.victim >= 0 && s.hosts[s.victim].dead {
		v = s.hosts[s.victim]
	}
	for r, e := range s.ends {
		switch {
		case s.hosts[r].dead:
		case e.join != nil && v == nil:
			return fmt.Errorf("rank %d has not joined: %w", r, e.join)
		case e.join != nil: // a rank was killed before all had joined
		case e.gather != nil && v == nil:
			return fmt.Errorf("rank %d: %w", r, e.gather)
		case e.close != nil:
			return fmt.Errorf("rank %d could not close: %w", r, e.close)
		}
	}
	for g := range s.groups {
		if err := s.checkGroup(g, v); err != nil {
			return fmt.Errorf("group %d: %w:%v", g, err, s)
		}
	}
	return nil
}

// checkGroup checks the notifications of a group's members; v is the killed rank's host.
func (s *scenario) checkGroup(g int, v *virtualHost) error {
	victim := slices.Index(s.groups[g], s.victim) // its rank in the group
	must := v == nil && len(s.reporters[g]) > 0 ||
		v != nil && victim >= 0 && v.when.Before(s.began.Add(scenarioEnd))
	var said *engine.Failure
	for _, r := range s.groups[g] {
		e := &s.ends[r].groups[g]
		if s.hosts[r].dead || s.ends[r].join != nil {
			continue
		}
		f := e.cause.Load()
		switch {
		case f == nil && must:
			return fmt.Errorf("rank %d was told nothing", r)
		case f == nil:
			continue
		case f.Kind != engine.ErrRankLost && !slices.Contains(s.reporters[g], f.Rank),
			f.Kind == engine.ErrRankLost && (v == nil || victim < 0 || !slices.Equal(f.Lost, []int{victim})):
			return fmt.Errorf("rank %d was told what is not so", r)
		case f.Kind == engine.ErrRankLost && e.told.Sub(v.when) > s.soon(v):
			return fmt.Errorf("rank %d was told late", r)
		case said != nil && !s.hosts[0].dead && f.Error() != said.Error():
			return errors.New("ranks were told different causes")
		}
		said = f
	}
	return nil
}

// String lists each rank's notifications with their times.
func (s *scenario) String() string {
	text := ""
	for r, e := range s.ends {
		if h := s.hosts[r]; h.dead {
			text += fmt.Sprintf("\nrank %d: dead after %v", r, h.when.Sub(s.began))
			continue
		}
		text += fmt.Sprintf("\nrank %d: %v, %v, %v", r, e.join, e.gather, e.close)
		for g := range e.groups {
			if end := &e.groups[g]; end.cause.Load() != nil {
				text += fmt.Sprintf("; group %d after %v: %v", g, end.told.Sub(s.began), end.cause.Load())
			}
		}
	}
	return text
}

// soon is how long after a kill all ranks must be notified.
func (s *scenario) soon(v *virtualHost) time.Duration {
	if v.vanish {
		return scenarioHostTimeout + time.Second
	}
	return time.Second
}
