package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/keepalive"
	"github.com/tutti-go/tutti/internal/overlay"
)

// A Member is one rank's end of the control channel. It is safe for concurrent use. The lock order
// is nodeMu, then mu.
type Member struct {
	cfg      Config
	blobs    [][]byte
	key      []byte
	server   *joinServer // nil on ranks other than 0
	rootConn *conn       // on ranks other than 0: the connection of Join
	answered bool        // rank 0 has sent its challenge
	greeted  atomic.Bool // this rank has sent its hello

	// nodeMu guards node, links, dropped, dialer and timer. It is held while the node takes an
	// input and its actions are performed, so that all groups are notified in one order, and other
	// ranks before the local groups.
	nodeMu  sync.Mutex
	node    *overlay.Node
	links   [][]*link      // by rank, the newest last
	dropped map[*link]bool // links that this rank has dropped and the other side has not closed
	dialer  Dialer
	timer   *time.Timer // of the node's next tick
	stepped chan struct{}
	ctx     context.Context // ends when this rank has left
	cancel  context.CancelFunc
	wg      sync.WaitGroup // all goroutines but the joinServer's

	mu               sync.Mutex // guards the fields down to pendingReports
	groups           map[string]*group
	early            map[string]*overlay.Cause // causes for groups that this rank has not formed yet
	earlyOrder       []string                  // names of groups, oldest first; may contain names that are no longer in early
	lost             map[int]engine.Loss       // lost ranks, with the reason
	left             map[int]bool              // ranks that have left in good order
	losses           []int                     // the keys of lost, in the order of notification
	gathers          map[string]*pendingGather
	positionHandlers map[string]func(from int, position []byte)
	closed           bool
	numReports       uint64
	pendingReports   map[uint64]*pendingReport // reports of this rank without a decision
	reportTimeout    time.Duration             // reportTime; tests change it
	done             chan struct{}             // closed when this rank has left
}

// A pendingGather is a Gather of this rank whose blobs have not arrived.
type pendingGather struct {
	members []int
	blobs   chan [][]byte // nil is sent if a member is lost
}

// A pendingReport is a cause that this rank has reported and whose group may have failed before for
// another reason.
type pendingReport struct {
	group string
	first chan *engine.Failure // receives the first cause; nil: this cause is the first
}

// settle ends the wait of a report. Only the first call has an effect.
func (r *pendingReport) settle(first *engine.Failure) {
	select {
	case r.first <- first:
	default:
	}
}

// A group is notified of its failure by fail. Member.mu guards the fields.
type group struct {
	members []int // by rank in the group: the rank in the job
	fail    func(*engine.Failure)
	// ended reports that the first cause has been decided. Later losses are then ignored: the rank
	// that reported the cause may not have returned to its engine yet, and a rank that was notified
	// may have left because of it.
	ended bool
	// first is the cause or loss of which this rank was notified first. After that this rank reports
	// no other cause: what it finds may be a consequence, such as the exit of a rank that was notified
	// before it.
	first *engine.Failure
}

// newMember returns a Member that has not joined yet.
func newMember(cfg Config) *Member {
	m := &Member{
		cfg: cfg, node: overlay.New(cfg.Rank, cfg.Size, keepalive.Clamp(cfg.HostTimeout)), links: make([][]*link, cfg.Size), dropped: make(map[*link]bool),
		stepped: make(chan struct{}, 1), left: make(map[int]bool), groups: make(map[string]*group), early: make(map[string]*overlay.Cause), lost: make(map[int]engine.Loss),
		gathers: make(map[string]*pendingGather), pendingReports: make(map[uint64]*pendingReport),
		positionHandlers: make(map[string]func(int, []byte)), done: make(chan struct{}), reportTimeout: reportTime,
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Blobs returns Config.Blob of every rank, by rank.
func (m *Member) Blobs() [][]byte { return m.blobs }

// keyBytes is the size of a job's key.
const keyBytes = 32

// Key returns a random key that rank 0 has made for this job. Only the ranks know it if the control
// channel is encrypted. Without encryption an observer of the network may know it, so a caller that
// authenticates ranks must use the job's secret as well.
func (m *Member) Key() []byte { return m.key }

// deliverGather passes the result of a Gather to its caller.
func (m *Member) deliverGather(f *frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.gathers[f.Key]; e != nil {
		delete(m.gathers, f.Key)
		e.blobs <- f.Blobs
	}
}

// failGroup notifies this rank's group, and the calls of Report that wait for it, of the first cause c.
// A call whose own cause came first is notified by nil. nodeMu is held.
func (m *Member) failGroup(c *overlay.Cause) {
	m.mu.Lock()
	g := m.groups[c.Group]
	if g != nil {
		g.ended = true
		if g.first == nil {
			g.first = c.Failure()
		}
	}
	r, own := m.pendingReports[c.Report]
	if own = own && c.From == m.cfg.Rank && r.group == c.Group; own {
		r.settle(nil)
		g = nil // the reporting call knows details that are not in the message
	}
	m.settleReports(c.Group, c.Failure())
	mine := c.Members == nil || slices.Contains(c.Members, m.cfg.Rank)
	if g == nil && !own && mine && !slices.ContainsFunc(c.Members, m.isLost) {
		m.keepEarly(c)
	}
	m.mu.Unlock()
	if g != nil {
		g.fail(c.Failure())
	}
}

// settleReports ends the waits of this rank's reports of a group's failure. The caller holds m.mu.
func (m *Member) settleReports(group string, first *engine.Failure) {
	for _, r := range m.pendingReports {
		if r.group == group {
			r.settle(first)
		}
	}
}

// keepEarly stores a cause for a group that this rank may still form. The caller holds m.mu.
func (m *Member) keepEarly(c *overlay.Cause) {
	m.early[c.Group] = c
	if m.earlyOrder = append(m.earlyOrder, c.Group); len(m.earlyOrder) > maxEarly {
		delete(m.early, m.earlyOrder[0])
		m.earlyOrder = m.earlyOrder[1:]
	}
}

// Cause returns the first cause of a group's failure, or nil if this rank was not notified of any.
// This rank need not have formed the group.
func (m *Member) Cause(group string) *engine.Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.firstCause(group)
}

// firstCause is Cause for a caller that holds m.mu.
func (m *Member) firstCause(group string) *engine.Failure {
	if g := m.groups[group]; g != nil {
		return g.first
	}
	if c := m.early[group]; c != nil {
		return c.Failure()
	}
	return nil
}

// isLost reports whether a rank is lost. A group with a lost member has failed before any later
// cause. The caller holds m.mu.
func (m *Member) isLost(rank int) bool {
	_, gone := m.lost[rank]
	return gone
}

// maxEarly bounds the causes kept for groups that are not formed yet.
const maxEarly = 1024

// Hosts sets the host number of each rank. Ranks with the same number share a host and are lost
// together when the host does not answer.
func (m *Member) Hosts(hosts []int) { m.step(func(time.Time) { m.node.Hosts(hosts) }) }

// lose notifies all groups that ranks are lost. nodeMu is held. The groups' fail functions are
// called without m.mu. Once Close has begun, lose does nothing.
func (m *Member) lose(ranks []int, reason engine.Loss) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	for _, r := range ranks {
		m.lost[r] = reason
	}
	m.losses = append(m.losses, ranks...)
	var tell []func()
	// In sorted order a group precedes the groups split from it.
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[name]
		if f := g.loss(ranks, reason); f != nil && !g.ended {
			if g.first == nil {
				g.first = f
			}
			m.settleReports(name, f)
			tell = append(tell, func() { g.fail(f) })
		}
	}
	m.endGathers(ranks)
	m.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// depart records that a rank has left in good order. nodeMu is held.
func (m *Member) depart(rank int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left[rank] = true
	m.endGathers([]int{rank})
}

// endGathers ends the Gathers that have one of ranks as a member. The caller holds m.mu.
func (m *Member) endGathers(ranks []int) {
	for key, e := range m.gathers {
		if slices.ContainsFunc(ranks, func(r int) bool { return slices.Contains(e.members, r) }) {
			delete(m.gathers, key)
			e.blobs <- nil
		}
	}
}

// Left returns the ranks that have left in good order, as far as this rank was notified.
func (m *Member) Left() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.left))
}

// Lost returns the lost ranks, as far as this rank was notified.
func (m *Member) Lost() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.lost))
}

// loss returns the failure of the group when ranks of the job are lost, or nil if no member is among
// them. The Failure has the ranks' numbers in the group. Member.mu is held.
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

// Watch registers fail for the group of that name. A goroutine of the Member calls fail when a
// member reports a cause or is lost; fail must not block. If the group has failed already, Watch
// calls fail before it returns.
func (m *Member) Watch(name string, members []int, fail func(*engine.Failure)) {
	g := &group{members: slices.Clone(members), fail: fail}
	m.mu.Lock()
	m.groups[name] = g
	var f *engine.Failure
	if c := m.early[name]; c != nil {
		f = c.Failure()
		g.ended = true
		delete(m.early, name)
	}
	for _, rank := range m.losses {
		if l := g.loss([]int{rank}, m.lost[rank]); l != nil && f == nil {
			f = l
		}
	}
	g.first = f
	m.mu.Unlock()
	if f != nil {
		fail(f)
	}
}

// Unwatch removes the registration of Watch.
func (m *Member) Unwatch(name string) {
	m.mu.Lock()
	delete(m.groups, name)
	m.mu.Unlock()
}

const (
	// reportTime is how long Report waits for a decision on the first cause.
	reportTime = time.Second
	// reportSteps divides the wait. A process that is stopped meanwhile loses one step at most, so
	// that it can still read the decision when it continues.
	reportSteps = 10
)

// Report reports the cause f of a group's failure to its members and returns the first cause, which
// all members are notified of. It returns f itself if f is the first, if there is no decision
// within reportTime, or if this rank leaves.
func (m *Member) Report(name string, f *engine.Failure) *engine.Failure {
	c := overlay.NewCause(name, f)
	verdict := make(chan *engine.Failure, 1)
	m.mu.Lock()
	if first := m.firstCause(name); first != nil {
		m.mu.Unlock()
		return first
	}
	if g := m.groups[name]; g != nil {
		c.Members = g.members
	}
	m.numReports++
	c.From, c.Report = m.cfg.Rank, m.numReports
	m.pendingReports[c.Report] = &pendingReport{name, verdict}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.pendingReports, c.Report)
		m.mu.Unlock()
	}()
	m.step(func(now time.Time) { m.node.Report(now, c) })
	for range reportSteps {
		select {
		case v := <-verdict:
			if v != nil {
				return v
			}
			return f
		case <-time.After(m.reportTimeout / reportSteps):
		case <-m.done:
			return f
		}
	}
	return f
}

// Gather exchanges blobs between the members of a group through rank 0. It returns the blobs in the
// order of members. All members call it with the same key, which is used once. It fails when a
// member is lost or has left, or when ctx ends. It must not be called after Reach.
func (m *Member) Gather(ctx context.Context, key string, members []int, blob []byte) ([][]byte, error) {
	e := &pendingGather{members, make(chan [][]byte, 1)}
	m.mu.Lock()
	m.gathers[key] = e
	for _, r := range members {
		if _, lost := m.lost[r]; lost || m.left[r] {
			delete(m.gathers, key)
			m.mu.Unlock()
			return nil, m.gatherError(members)
		}
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.gathers, key)
		m.mu.Unlock()
	}()
	f := &frame{Kind: putBlob, Rank: m.cfg.Rank, Key: key, Members: members, Blob: blob}
	if m.server != nil {
		m.server.addBlob(f)
	} else if err := m.rootConn.send(f); err != nil {
		return nil, fmt.Errorf("rank 0 is lost: %w", err)
	}
	select {
	case blobs := <-e.blobs:
		if blobs == nil {
			return nil, m.gatherError(members)
		}
		return blobs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-m.done:
		return nil, errors.New("this rank has left the job")
	}
}

// gatherError names a member that is lost or has left, with the reason.
func (m *Member) gatherError(members []int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range members {
		if reason, lost := m.lost[r]; lost {
			return fmt.Errorf("rank %d of the job is lost: %s", r, reason)
		}
		if m.left[r] {
			return fmt.Errorf("rank %d has left the job", r)
		}
	}
	return errors.New("a rank of the job is lost")
}
