package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/keepalive"
	"github.com/tutti-go/tutti/internal/overlay"
)

// A Member is one rank's end of the channel. It is safe for concurrent use.
type Member struct {
	cfg      Config
	blobs    [][]byte
	key      []byte
	hub      *hub  // rank 0's
	up       *conn // the others': the connection of Join
	answered bool  // rank 0 has

	// news is held while the node takes something and its actions are carried out: all groups are
	// notified in one order, and other ranks before them.
	news    sync.Mutex
	node    *overlay.Node
	links   [][]*link      // by rank, the newest last
	dropped map[*link]bool // links that this rank uses no more, until the other side ends them
	dialer  Dialer
	timer   *time.Timer // of the node's next tick
	stepped chan struct{}
	ctx     context.Context // ends when this rank has left
	cancel  context.CancelFunc
	work    sync.WaitGroup // all goroutines but the hub's

	mu       sync.Mutex
	groups   map[string]*group
	early    map[string]*overlay.Cause // causes for groups that this rank has not made yet
	earlier  []string                  // the groups of early, the oldest first, and some that are not there any more
	gone     map[int]engine.Loss       // ranks that are lost, and why
	left     map[int]bool              // ranks that have left in good order
	losses   []int                     // the ranks of gone, in the order in which they were told
	results  map[string]*exchange
	follows  map[string]func(from int, position []byte)
	closed   bool
	reports  uint64
	verdicts map[uint64]*report // this rank's that are not judged
	patience time.Duration      // verdictTime
	done     chan struct{}      // closed when this rank has left
}

// exchange is one whose blobs this rank waits for.
type exchange struct {
	members []int
	blobs   chan [][]byte // nil is sent if a member is lost
}

// report is a cause whose group may have failed before for another reason.
type report struct {
	group   string
	verdict chan *engine.Failure // what came first; nil: this cause did
}

// settle ends the wait of a report, if nothing has before.
func (r *report) settle(first *engine.Failure) {
	select {
	case r.verdict <- first:
	default:
	}
}

// group is who is to be told of a group's failure.
type group struct {
	members []int // by their numbers in the job
	fail    func(*engine.Failure)
	// ended is set when the first cause of its end has been judged. Whoever
	// reported that may not have come back to its engine with it yet, while those
	// who were told have left: that is no cause any more.
	ended bool
	// cause is the first cause of its end, if this rank was notified of one. Then it
	// reports no other.
	cause *overlay.Cause
}

func newMember(cfg Config) *Member {
	m := &Member{
		cfg: cfg, node: overlay.New(cfg.Rank, cfg.Size, keepalive.Limit(cfg.Silence)), links: make([][]*link, cfg.Size), dropped: make(map[*link]bool),
		stepped: make(chan struct{}, 1), left: make(map[int]bool), groups: make(map[string]*group), early: make(map[string]*overlay.Cause), gone: make(map[int]engine.Loss),
		results: make(map[string]*exchange), verdicts: make(map[uint64]*report),
		follows: make(map[string]func(int, []byte)), done: make(chan struct{}), patience: verdictTime,
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Blobs returns what the ranks said of themselves when they joined.
func (m *Member) Blobs() [][]byte { return m.blobs }

// keyBytes is the size of a job's key.
const keyBytes = 32

// Key is made at random by rank 0 for this job, and known to its ranks alone, as far
// as the control channel is private: where it is not encrypted, others on the network
// may have read it. A caller that must tell ranks from strangers adds the job's secret.
func (m *Member) Key() []byte { return m.key }

// take takes the result of an exchange.
func (m *Member) take(f *frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.results[f.Key]; e != nil {
		delete(m.results, f.Key)
		e.blobs <- f.Blobs
	}
}

// fail tells a group why it has ended, and whoever reported a cause of it.
func (m *Member) fail(c *overlay.Cause) {
	m.mu.Lock()
	g := m.groups[c.Group]
	if g != nil {
		g.ended = true
		if g.cause == nil {
			g.cause = c
		}
	}
	r, own := m.verdicts[c.Report]
	if own = own && c.From == m.cfg.Rank && r.group == c.Group; own {
		r.settle(nil)
		g = nil // the call that reported it knows more of it than has travelled
	}
	m.settle(c.Group, c.Failure())
	mine := c.Members == nil || slices.Contains(c.Members, m.cfg.Rank)
	if g == nil && !own && mine && !slices.ContainsFunc(c.Members, m.isGone) {
		m.keepEarly(c)
	}
	m.mu.Unlock()
	if g != nil {
		g.fail(c.Failure())
	}
}

// settle ends the waits of this rank's reports of a group's failure. m.mu is held.
func (m *Member) settle(group string, first *engine.Failure) {
	for _, r := range m.verdicts {
		if r.group == group {
			r.settle(first)
		}
	}
}

// keepEarly keeps a cause for a group that this rank may still make. The lock is
// held.
func (m *Member) keepEarly(c *overlay.Cause) {
	m.early[c.Group] = c
	if m.earlier = append(m.earlier, c.Group); len(m.earlier) > maxEarly {
		delete(m.early, m.earlier[0])
		m.earlier = m.earlier[1:]
	}
}

// Cause returns the first cause of a group's end, as far as this rank was notified, or nil. The group may
// be one that this rank has not made yet.
func (m *Member) Cause(group string) *engine.Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.early[group]
	if g := m.groups[group]; g != nil {
		c = g.cause
	}
	if c == nil {
		return nil
	}
	return c.Failure()
}

// isGone reports whether a rank is lost. A group that has lost one has ended
// before any cause that is told later. The lock is held.
func (m *Member) isGone(rank int) bool {
	_, gone := m.gone[rank]
	return gone
}

// maxEarly bounds the causes kept for groups that are not there yet.
const maxEarly = 1024

// Hosts says which ranks share a host: the ranks that have the same number. When a
// host does not answer, all its ranks are lost.
func (m *Member) Hosts(hosts []int) { m.step(func(time.Time) { m.node.Hosts(hosts) }) }

// lose notifies all groups that ranks are lost.
func (m *Member) lose(ranks []int, reason engine.Loss) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	for _, r := range ranks {
		m.gone[r] = reason
	}
	m.losses = append(m.losses, ranks...)
	var tell []func()
	// Groups come before those that were made of them, as their names do.
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[name]
		if f := g.loss(ranks, reason); f != nil && !g.ended {
			m.settle(name, f)
			tell = append(tell, func() { g.fail(f) })
		}
	}
	m.endExchanges(ranks)
	m.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// depart notes that a rank has left in good order.
func (m *Member) depart(rank int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left[rank] = true
	m.endExchanges([]int{rank})
}

// endExchanges ends the exchanges of which one of some ranks is a member. m.mu is held.
func (m *Member) endExchanges(ranks []int) {
	for key, e := range m.results {
		if slices.ContainsFunc(ranks, func(r int) bool { return slices.Contains(e.members, r) }) {
			delete(m.results, key)
			e.blobs <- nil
		}
	}
}

// Left returns the ranks that are known to have left in good order.
func (m *Member) Left() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.left))
}

// Lost returns the ranks that are known to be lost.
func (m *Member) Lost() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.gone))
}

// loss is the failure of a group that has lost ranks; nil if none was in it.
func (g *group) loss(ranks []int, reason engine.Loss) *engine.Failure {
	var list []int
	for i, r := range g.members {
		if slices.Contains(ranks, r) {
			list = append(list, i)
		}
	}
	if list == nil {
		return nil
	}
	return &engine.Failure{
		Kind: engine.ErrRankLost, Rank: list[0], Lost: list, Told: true,
		Facts: engine.Facts{Event: engine.RanksLost, Loss: reason},
	}
}

// Watch has fail called, from any goroutine, when the group of that name ends:
// when one of its members reports a cause, or is lost. What has happened
// already is told at once.
func (m *Member) Watch(name string, members []int, fail func(*engine.Failure)) {
	g := &group{members: slices.Clone(members), fail: fail}
	m.mu.Lock()
	m.groups[name] = g
	var f *engine.Failure
	if c := m.early[name]; c != nil {
		f = c.Failure()
		g.ended, g.cause = true, c
		delete(m.early, name)
	}
	for _, rank := range m.losses {
		if l := g.loss([]int{rank}, m.gone[rank]); l != nil && f == nil {
			f = l
		}
	}
	m.mu.Unlock()
	if f != nil {
		fail(f)
	}
}

// Unwatch ends that.
func (m *Member) Unwatch(name string) {
	m.mu.Lock()
	delete(m.groups, name)
	m.mu.Unlock()
}

// verdictTime is how long a failing rank waits to hear whether another failed
// first.
const verdictTime = time.Second

// Report tells the members of a group why it has ended, and returns the cause
// that came first, which is what all of them are told. If that is this one, or
// cannot be found out soon, it returns f itself.
func (m *Member) Report(name string, f *engine.Failure) *engine.Failure {
	c := overlay.NewCause(name, f)
	verdict := make(chan *engine.Failure, 1)
	m.mu.Lock()
	first := m.early[name]
	if g := m.groups[name]; g != nil {
		c.Members, first = g.members, g.cause
	}
	if first != nil {
		m.mu.Unlock()
		return first.Failure()
	}
	m.reports++
	c.From, c.Report = m.cfg.Rank, m.reports
	m.verdicts[c.Report] = &report{name, verdict}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.verdicts, c.Report)
		m.mu.Unlock()
	}()
	m.step(func(now time.Time) { m.node.Report(now, c) })
	select {
	case v := <-verdict:
		if v != nil {
			return v
		}
	case <-time.After(m.patience):
	case <-m.done:
	}
	return f
}

// Gather exchanges blobs between the members of a group through rank 0: each gets all, in the
// order of members. The key names the exchange; all members use the same, once.
// It fails when a member is lost. It is for Join, before Reach is called.
func (m *Member) Gather(ctx context.Context, key string, members []int, blob []byte) ([][]byte, error) {
	e := &exchange{members, make(chan [][]byte, 1)}
	m.mu.Lock()
	m.results[key] = e
	for _, r := range members {
		if _, lost := m.gone[r]; lost || m.left[r] {
			delete(m.results, key)
			m.mu.Unlock()
			return nil, m.missed(members)
		}
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.results, key)
		m.mu.Unlock()
	}()
	f := &frame{Kind: put, Rank: m.cfg.Rank, Key: key, Members: members, Blob: blob}
	if m.hub != nil {
		m.hub.collect(f)
	} else if err := m.up.send(f); err != nil {
		return nil, fmt.Errorf("rank 0 is lost: %w", err)
	}
	select {
	case blobs := <-e.blobs:
		if blobs == nil {
			return nil, m.missed(members)
		}
		return blobs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-m.done:
		return nil, errors.New("the control channel has ended")
	}
}

// missed says which member of an exchange is lost, and why.
func (m *Member) missed(members []int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range members {
		if reason, lost := m.gone[r]; lost {
			return fmt.Errorf("rank %d of the job is lost: %s", r, reason)
		}
		if m.left[r] {
			return fmt.Errorf("rank %d has left the job", r)
		}
	}
	return errors.New("a rank of the job is lost")
}
