package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/place"
	"github.com/tutti-go/tutti/store"
)

// A coordinator runs in the launcher of node 0 of an elastic job over several hosts.
// It registers the launchers, node 0's own included, counts their ranks, and is the
// only one that ends the job.
//
// Launchers write to one queue, deskKey: applications and heartbeats. The coordinator
// alone writes all other keys. A launcher that was given up cannot change the job: it
// has no key to write to, and its heartbeats carry a registration that is not valid.
type coordinator struct {
	cfg       *Config
	own       store.Store                 // what launchers tell each other
	rankStore func(epoch int) store.Store // where the ranks of an attempt rendezvous
	told      func(epoch int, name string) bool
	inbox     chan message
	missing   chan chan []int // asks which nodes have no launcher
	abort     chan string     // why a job that has not begun never will
	empty     chan struct{}   // closed when all other launchers have left

	tally      tally
	phase      phase
	epoch      int
	registered int64 // registrations so far
	applicants []*application
	events     int      // published in the attempt
	decisions  int      // of the ranks, taken in the attempt
	names      []string // process names of the last decision
	overSaid   bool     // eventOver is published
	hostsSaid  int      // losses of hosts that are published
	outcome    event    // of the attempt, once it has failed or finished
}

type phase int

const (
	gathering phase = iota // launchers are awaited
	running                // an attempt is under way
	ending                 // it has failed or finished; launchers end their processes
	closing                // the job is over
)

// The keys of an elastic job over several hosts, in the launchers' part of the store.
const deskKey = "desk"

func replyKey(token string) string              { return "reply/" + token }
func goneKey(registration int64) string         { return fmt.Sprintf("gone/%d", registration) }
func beginKey(registration int64, n int) string { return fmt.Sprintf("begin/%d/%d", registration, n) }
func eventKey(epoch, n int) string              { return fmt.Sprintf("event/%d/%d", epoch, n) }

// A message is what launchers put into the queue.
type message struct {
	Apply *application `json:"apply,omitempty"`
	Beat  *heartbeat   `json:"beat,omitempty"`
}

// A reply answers an application.
type reply struct {
	Refused      string        `json:"refused,omitempty"`
	Registration int64         `json:"registration,omitempty"`
	LostTime     time.Duration `json:"lostTime,omitempty"`
}

// A beginning tells a launcher to start its processes.
type beginning struct {
	Stop  string `json:"stop,omitempty"` // why there will be none
	Epoch int    `json:"epoch"`
	Base  int    `json:"base"`
	Size  int    `json:"size"`
	// Firsts are the replacement numbers of the processes, by place, if they join a
	// running job.
	Firsts []int `json:"firsts,omitempty"`
	// Events is how many events the attempt has had so far. They are no news.
	Events int `json:"events,omitempty"`
}

// An event is what has become of an attempt. All launchers get the same events in the
// same order.
type event struct {
	Kind    string      `json:"kind"`
	Exit    *Exit       `json:"exit,omitempty"`    // the first failure
	Why     string      `json:"why,omitempty"`     // what launchers print; "": nothing
	Restart bool        `json:"restart,omitempty"` // all ranks are started again
	Hosts   []*HostLoss `json:"hosts,omitempty"`   // with eventDone
}

const (
	eventHost     = "host"     // a host is lost, or has come
	eventFormed   = "formed"   // the ranks have joined; from now on they are replaced
	eventOver     = "over"     // a rank has ended well; from now on none is replaced
	eventFailed   = "failed"   // all ranks are to be ended
	eventFinished = "finished" // all ranks have ended; processes that wait to be let in are to be ended
	eventDone     = "done"     // all launchers have ended the attempt
)

func newCoordinator(h *host) *coordinator {
	c := &coordinator{
		cfg: h.cfg, own: h.own, rankStore: h.ranks,
		told:  func(epoch int, name string) bool { return suffered(h.told(epoch, name)) },
		inbox: make(chan message), missing: make(chan chan []int), abort: make(chan string, 1), empty: make(chan struct{}),
	}
	c.tally = tally{min: h.cfg.Min, max: h.cfg.Max, lostTime: h.cfg.LostTime, nodes: make([]node, h.cfg.Nodes), looked: time.Now()}
	return c
}

// run coordinates the job until ctx ends. The store is in this process, so that no call
// takes long.
func (c *coordinator) run(ctx context.Context) {
	go c.receive(ctx)
	tick := time.NewTicker(max(min(100*time.Millisecond, c.cfg.LostTime/8), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-c.inbox:
			c.take(ctx, m, time.Now())
		case ask := <-c.missing:
			var list []int
			for i, n := range c.tally.nodes {
				if n.registration == 0 {
					list = append(list, i)
				}
			}
			ask <- list
		case why := <-c.abort:
			if c.phase == gathering {
				c.dismiss(ctx, why)
			}
		case <-tick.C:
		}
		c.step(ctx, time.Now())
	}
}

// receive passes on what launchers say.
func (c *coordinator) receive(ctx context.Context) {
	for {
		text, err := c.own.Pop(ctx, deskKey)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text, &m) != nil || !m.valid(c.cfg.Nodes) {
			c.cfg.Logger.Warn("tutti: a launcher has sent something that cannot be", "text", fmt.Sprintf("%.80q", text))
			continue
		}
		select {
		case c.inbox <- m:
		case <-ctx.Done():
			return
		}
	}
}

// valid reports whether a message can be from a launcher.
func (m *message) valid(nodes int) bool {
	if a := m.Apply; a != nil && (a.Node < 0 || a.Node >= nodes || a.Ranks < 1 || a.Ranks > maxRanks || a.Token == "") {
		return false
	}
	if b := m.Beat; b != nil {
		if b.Fatal != nil && b.Fatal.check() != nil {
			return false
		}
		for _, p := range b.Processes {
			if p.Exit != nil && p.Exit.check() != nil {
				return false
			}
		}
	}
	return m.Apply != nil || m.Beat != nil
}

func (c *coordinator) take(ctx context.Context, m message, now time.Time) {
	if a := m.Apply; a != nil {
		a.seq = c.tally.nodes[a.Node].seq
		c.applicants = append(c.applicants, a)
	}
	if m.Beat != nil {
		// Membership first: the processes of a heartbeat may have been let in since.
		c.catchUp(ctx)
		c.tally.hear(m.Beat, c.epoch, now)
	}
}

// step does what is due.
func (c *coordinator) step(ctx context.Context, now time.Time) {
	t := &c.tally
	c.catchUp(ctx)
	for _, n := range t.silent(now) {
		how := fmt.Sprintf("no sign of its launcher for %v", now.Sub(t.nodes[n].heard).Round(100*time.Millisecond))
		c.set(ctx, goneKey(t.nodes[n].registration), how)
		t.giveUp(n, how, now)
	}
	c.applicants = slices.DeleteFunc(c.applicants, func(a *application) bool { return c.consider(ctx, a, now) })
	switch c.phase {
	case gathering:
		c.gather(ctx, now)
	case running:
		c.judge(ctx, now)
	case ending:
		if t.settled() {
			c.settle(ctx)
		}
	case closing:
		for _, n := range t.nodes[1:] {
			if n.registration != 0 {
				return
			}
		}
		select {
		case <-c.empty:
		default:
			close(c.empty)
		}
	}
}

// consider decides on an application. It reports whether that is done with.
func (c *coordinator) consider(ctx context.Context, a *application, now time.Time) bool {
	t := &c.tally
	if c.phase == ending && c.outcome.Restart {
		return false // the next attempt may need it
	}
	ok, refusal := t.admit(a, c.phase != gathering || c.epoch > 0, c.phase == running)
	if c.phase == ending || c.phase == closing {
		refusal = "the job is ending"
	}
	switch {
	case refusal != "":
		c.set(ctx, replyKey(a.Token), reply{Refused: refusal})
		return true
	case !ok:
		return false
	}
	c.registered++
	t.register(c.registered, a, now)
	for _, other := range c.applicants {
		if other.Node == a.Node {
			other.seq = 0 // the new launcher's heartbeats count from 1
		}
	}
	c.set(ctx, replyKey(a.Token), reply{Registration: c.registered, LostTime: c.cfg.LostTime})
	if c.phase == running {
		c.begin(ctx, a.Node, t.newcomers(a.Node))
		c.publish(ctx, event{Kind: eventHost, Why: fmt.Sprintf("node %d is here again: %s; its ranks wait to be let in", a.Node, a.Who)})
	}
	return true
}

// begin tells a launcher to start its processes.
func (c *coordinator) begin(ctx context.Context, node int, firsts []int) {
	n := &c.tally.nodes[node]
	c.set(ctx, beginKey(n.registration, n.begins), beginning{
		Epoch: c.epoch, Base: c.tally.base(node), Size: c.cfg.Max, Firsts: firsts, Events: c.events,
	})
	n.begins++
}

// gather begins an attempt when all launchers are registered.
func (c *coordinator) gather(ctx context.Context, now time.Time) {
	t := &c.tally
	size := 0
	var each []string
	for i := range t.nodes {
		if t.nodes[i].registration == 0 {
			return
		}
		size += t.nodes[i].ranks
		each = append(each, strconv.Itoa(t.nodes[i].ranks))
	}
	if size != c.cfg.Max {
		c.dismiss(ctx, fmt.Sprintf("the hosts have %d ranks (%s), but --elastic %d:%d says that the whole job has %d",
			size, strings.Join(each, " + "), c.cfg.Min, c.cfg.Max, c.cfg.Max))
		return
	}
	t.start(now)
	c.phase, c.events, c.decisions, c.overSaid, c.hostsSaid, c.outcome = running, 0, 0, false, 0, event{}
	c.names = slices.Clone(t.members)
	for i := range t.nodes {
		c.begin(ctx, i, nil)
	}
}

// dismiss ends a job that cannot begin.
func (c *coordinator) dismiss(ctx context.Context, why string) {
	for i := range c.tally.nodes {
		if n := &c.tally.nodes[i]; n.registration != 0 {
			c.set(ctx, beginKey(n.registration, n.begins), beginning{Stop: why})
			n.begins++
		}
	}
	c.phase = closing
}

// judge has the tally decide, and publishes what is new.
func (c *coordinator) judge(ctx context.Context, now time.Time) {
	t := &c.tally
	if !t.formed {
		c.lookAtJoin(ctx)
	}
	if t.over && !c.overSaid {
		c.overSaid = true
		c.publish(ctx, event{Kind: eventOver})
	}
	for ; c.hostsSaid < len(t.lost); c.hostsSaid++ {
		c.publish(ctx, event{Kind: eventHost, Why: t.news(t.lost[c.hostsSaid])})
	}
	v := t.verdict(now, func(name string) bool { return c.told(c.epoch, name) })
	switch {
	case v.failed != nil:
		restart := c.epoch < c.cfg.Restarts && t.fatal == nil
		c.outcome = event{Kind: eventFailed, Exit: v.failed, Why: v.why, Restart: restart}
	case v.finished:
		c.outcome = event{Kind: eventFinished}
	default:
		return
	}
	t.closed, c.phase = true, ending
	c.publish(ctx, c.outcome)
}

// lookAtJoin finds out whether the ranks have joined, and whether one that has ended
// without joining keeps others waiting.
func (c *coordinator) lookAtJoin(ctx context.Context) {
	state := joinStates(ctx, c.rankStore(c.epoch))
	waits := -1
	for r, s := range state {
		if s == hadJoined {
			c.tally.formed = true
			c.publish(ctx, event{Kind: eventFormed})
			return
		}
		waits = max(waits, r)
	}
	for _, p := range c.tally.procs {
		if waits >= 0 && p.Exit != nil && p.Exit.Code == 0 && state[p.Rank] == "" && c.tally.fatal == nil {
			e := *p.Exit
			e.Code, e.How = 1, fmt.Sprintf("ended without calling Join, and rank %d waits for it", waits)
			c.tally.fatal = &e
		}
	}
}

// settle closes an attempt that all launchers have ended.
func (c *coordinator) settle(ctx context.Context) {
	done := c.outcome
	done.Kind, done.Hosts = eventDone, c.tally.lost
	for _, l := range done.Hosts {
		for _, name := range l.newcomers {
			if as := letIn(ctx, c.rankStore(c.epoch), name); as != "" {
				l.LetIn = append(l.LetIn, as)
			}
		}
	}
	c.publish(ctx, done)
	c.phase = closing
	if done.Restart {
		c.phase, c.epoch = gathering, c.epoch+1
	}
}

// catchUp takes the decisions of the ranks that are new.
func (c *coordinator) catchUp(ctx context.Context) {
	if c.phase != running {
		return
	}
	s := c.rankStore(c.epoch)
	for {
		key := place.WorldKey(c.decisions)
		if there, err := s.Check(ctx, agree.DecisionKey(key)); err != nil || !there {
			return
		}
		d, err := agree.Learn(ctx, agree.On(s), key)
		if err != nil {
			return
		}
		c.decisions++
		c.names = nextNames(ctx, s, c.names, d)
		c.tally.decide(c.names)
	}
}

// publish adds an event to the attempt's.
func (c *coordinator) publish(ctx context.Context, e event) {
	c.events++
	c.set(ctx, eventKey(c.epoch, c.events), e)
}

// set writes a key. The store is in this process: it fails only when that ends.
func (c *coordinator) set(ctx context.Context, key string, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		c.cfg.Logger.Warn("tutti: a message to launchers cannot be written", "reason", err)
		return
	}
	if err := c.own.Set(ctx, key, data); err != nil && ctx.Err() == nil {
		c.cfg.Logger.Warn("tutti: a message to launchers was not stored", "reason", err)
	}
}
