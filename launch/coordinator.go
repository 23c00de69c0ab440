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
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// A coordinator runs in the launcher of node 0 of an elastic job over several hosts. It
// registers the launchers, including node 0's own, counts their ranks, and decides when
// the job ends. One goroutine, run, owns all fields except the channels.
//
// Launchers write to one queue, jobstore.Coordination: applications and heartbeats. The coordinator
// alone writes all other keys. A launcher that was declared lost cannot change the job:
// it has no key to write to, and its heartbeats carry an invalid registration.
type coordinator struct {
	cfg          *Config
	own          store.Store                   // shared by the launchers
	rankStore    func(attempt int) store.Store // store of an attempt's ranks
	failedByPeer func(attempt int, name string) bool
	inbox        chan message
	missing      chan chan []int // requests for the list of nodes without a launcher
	abort        chan string     // reasons why a job that has not begun is cancelled
	allLeft      chan struct{}   // closed when all other launchers have left

	state               jobState
	phase               phase
	attempt             int
	registered          int64 // registrations so far
	applicants          []*application
	events              int      // published in the attempt
	decisions           int      // decisions of the ranks read in the attempt
	names               []string // process names of the last decision, in rank order
	successPublished    bool     // eventSucceeded is published
	hostLossesPublished int      // length of the published prefix of state.lost
	outcome             event    // of the attempt, once it has failed or finished
}

type phase int

const (
	gathering phase = iota // some nodes have no launcher yet
	running                // an attempt is under way
	ending                 // the attempt has failed or finished; launchers end their processes
	closing                // the job has ended
)

// A message is an element of the launchers' queue to the coordinator.
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

// A startMessage tells a launcher to start its processes.
type startMessage struct {
	Stop    string `json:"stop,omitempty"` // why the job does not start; "": it starts
	Attempt int    `json:"attempt"`
	Base    int    `json:"base"`
	Size    int    `json:"size"`
	// FirstReplacements are the replacement numbers of the launcher's first processes,
	// by local rank, if they join a running job.
	FirstReplacements []int `json:"firsts,omitempty"`
	// PastEvents is how many events the attempt has had. The launcher does not print
	// them.
	PastEvents int `json:"events,omitempty"`
}

// An event is a decision about an attempt. All launchers receive the same events in the
// same order.
type event struct {
	Kind    string      `json:"kind"`
	Exit    *Exit       `json:"exit,omitempty"`    // the first failure
	Why     string      `json:"why,omitempty"`     // text that launchers print; "": none
	Restart bool        `json:"restart,omitempty"` // all ranks will be started again
	Hosts   []*HostLoss `json:"hosts,omitempty"`   // set in eventDone
}

const (
	eventHost      = "host"     // a host was lost or has joined
	eventFormed    = "formed"   // the ranks have joined; from now on failed ranks are replaced
	eventSucceeded = "over"     // a rank exited with code 0; from now on no rank is replaced
	eventFailed    = "failed"   // launchers must end all ranks
	eventFinished  = "finished" // all ranks have exited; launchers must end replacements that wait for admission
	eventDone      = "done"     // all launchers have ended the attempt
)

func newCoordinator(h *host) *coordinator {
	c := &coordinator{
		cfg: h.cfg, own: h.own, rankStore: h.rankStore,
		failedByPeer: func(attempt int, name string) bool { return failedByPeer(h.activityDumps(attempt, name)) },
		inbox:        make(chan message), missing: make(chan chan []int), abort: make(chan string, 1), allLeft: make(chan struct{}),
	}
	c.state = jobState{min: h.cfg.Min, max: h.cfg.Max, lostTime: h.cfg.LostTime, nodes: make([]node, h.cfg.Nodes), lastCheck: time.Now()}
	return c
}

// run coordinates the job until ctx ends. It alone uses the coordinator's state; other goroutines
// send it messages and requests through channels. Store calls are fast, because the store is in
// this process.
func (c *coordinator) run(ctx context.Context) {
	go c.receive(ctx)
	tick := time.NewTicker(max(min(100*time.Millisecond, c.cfg.LostTime/8), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-c.inbox:
			c.handle(ctx, m, time.Now())
		case ask := <-c.missing:
			var list []int
			for i, n := range c.state.nodes {
				if n.registration == 0 {
					list = append(list, i)
				}
			}
			ask <- list
		case why := <-c.abort:
			if c.phase == gathering {
				c.cancelStart(ctx, why)
			}
		case <-tick.C:
		}
		c.step(ctx, time.Now())
	}
}

// receive moves valid messages from the launchers' queue to the inbox, in a goroutine of its own,
// until ctx ends or the store is closed. It logs and drops invalid messages.
func (c *coordinator) receive(ctx context.Context) {
	for {
		text, err := c.own.Pop(ctx, jobstore.Coordination)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text, &m) != nil || !m.valid(c.cfg.Nodes) {
			c.cfg.Logger.Warn("tutti: ignored an invalid message of a launcher", "text", fmt.Sprintf("%.80q", text))
			continue
		}
		select {
		case c.inbox <- m:
		case <-ctx.Done():
			return
		}
	}
}

// valid reports whether a launcher can have sent the message: the values of an application, and the
// exits in a heartbeat, must be possible. jobState checks the rest of a heartbeat.
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

func (c *coordinator) handle(ctx context.Context, m message, now time.Time) {
	if a := m.Apply; a != nil {
		a.seq = c.state.nodes[a.Node].seq
		c.applicants = append(c.applicants, a)
	}
	if m.Beat != nil {
		// Read decisions first: the processes of a heartbeat may have been admitted
		// since.
		c.readDecisions(ctx)
		c.state.handleHeartbeat(m.Beat, c.attempt, now)
	}
}

// step carries out everything that is due at now. Only the goroutine of run calls it, after each
// message and at each tick.
func (c *coordinator) step(ctx context.Context, now time.Time) {
	t := &c.state
	c.readDecisions(ctx)
	for _, n := range t.silent(now) {
		how := fmt.Sprintf("no heartbeat of its launcher for %v", now.Sub(t.nodes[n].lastHeartbeat).Round(100*time.Millisecond))
		c.set(ctx, jobstore.DeclaredLost(t.nodes[n].registration), how)
		t.declareLost(n, how, now)
	}
	c.applicants = slices.DeleteFunc(c.applicants, func(a *application) bool { return c.decideApplication(ctx, a, now) })
	switch c.phase {
	case gathering:
		c.beginIfComplete(ctx, now)
	case running:
		c.evaluate(ctx, now)
	case ending:
		if t.allEnded() {
			c.closeAttempt(ctx)
		}
	case closing:
		for _, n := range t.nodes[1:] {
			if n.registration != 0 {
				return
			}
		}
		select {
		case <-c.allLeft:
		default:
			close(c.allLeft)
		}
	}
}

// decideApplication accepts or refuses an application. It returns false if the
// application must wait.
func (c *coordinator) decideApplication(ctx context.Context, a *application, now time.Time) bool {
	t := &c.state
	if c.phase == ending && c.outcome.Restart {
		return false // the next attempt may need the host
	}
	ok, refusal := t.admit(a, c.phase != gathering || c.attempt > 0, c.phase == running)
	if c.phase == ending || c.phase == closing {
		refusal = "the job is ending"
	}
	switch {
	case refusal != "":
		c.set(ctx, jobstore.Reply(a.Token), reply{Refused: refusal})
		return true
	case !ok:
		return false
	}
	c.registered++
	t.register(c.registered, a, now)
	for _, other := range c.applicants {
		if other.Node == a.Node {
			other.seq = 0 // heartbeats of the new launcher count from 1
		}
	}
	c.set(ctx, jobstore.Reply(a.Token), reply{Registration: c.registered, LostTime: c.cfg.LostTime})
	if c.phase == running {
		c.sendStart(ctx, a.Node, t.addReplacements(a.Node))
		c.publish(ctx, event{Kind: eventHost, Why: fmt.Sprintf("node %d has rejoined: %s; its ranks wait to be admitted", a.Node, a.Who)})
	}
	return true
}

// sendStart tells a launcher to start its processes.
func (c *coordinator) sendStart(ctx context.Context, node int, firstReplacements []int) {
	n := &c.state.nodes[node]
	c.set(ctx, jobstore.Start(n.registration, n.starts), startMessage{
		Attempt: c.attempt, Base: c.state.base(node), Size: c.cfg.Max, FirstReplacements: firstReplacements, PastEvents: c.events,
	})
	n.starts++
}

// beginIfComplete begins an attempt when all launchers are registered. If their ranks do not add up
// to cfg.Max, it cancels the start on all of them.
func (c *coordinator) beginIfComplete(ctx context.Context, now time.Time) {
	t := &c.state
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
		c.cancelStart(ctx, fmt.Sprintf("the hosts have %d ranks (%s), but --elastic %d:%d says that the whole job has %d",
			size, strings.Join(each, " + "), c.cfg.Min, c.cfg.Max, c.cfg.Max))
		return
	}
	t.start(now)
	c.phase, c.events, c.decisions, c.successPublished, c.hostLossesPublished, c.outcome = running, 0, 0, false, 0, event{}
	c.names = slices.Clone(t.members)
	for i := range t.nodes {
		c.sendStart(ctx, i, nil)
	}
}

// cancelStart ends a job that cannot begin.
func (c *coordinator) cancelStart(ctx context.Context, why string) {
	for i := range c.state.nodes {
		if n := &c.state.nodes[i]; n.registration != 0 {
			c.set(ctx, jobstore.Start(n.registration, n.starts), startMessage{Stop: why})
			n.starts++
		}
	}
	c.phase = closing
}

// evaluate publishes new facts about the attempt and decides whether it has failed or finished.
// After that it publishes the outcome once, and the phase is ending.
func (c *coordinator) evaluate(ctx context.Context, now time.Time) {
	t := &c.state
	if !t.formed {
		c.checkJoin(ctx)
	}
	if t.succeeded && !c.successPublished {
		c.successPublished = true
		c.publish(ctx, event{Kind: eventSucceeded})
	}
	for ; c.hostLossesPublished < len(t.lost); c.hostLossesPublished++ {
		c.publish(ctx, event{Kind: eventHost, Why: t.lossMessage(t.lost[c.hostLossesPublished])})
	}
	v := t.verdict(now, func(name string) bool { return c.failedByPeer(c.attempt, name) })
	switch {
	case v.failed != nil:
		restart := c.attempt < c.cfg.Restarts && t.fatal == nil
		c.outcome = event{Kind: eventFailed, Exit: v.failed, Why: v.why, Restart: restart}
	case v.finished:
		c.outcome = event{Kind: eventFinished}
	default:
		return
	}
	t.closed, c.phase = true, ending
	c.publish(ctx, c.outcome)
}

// checkJoin finds out whether the ranks have joined, and whether ranks wait in Join for a rank that
// exited without calling it. It sets state.formed, or state.fatal, which ends the job.
func (c *coordinator) checkJoin(ctx context.Context) {
	state := joinStates(ctx, c.rankStore(c.attempt))
	waits := -1
	for r, s := range state {
		if s == hadJoined {
			c.state.formed = true
			c.publish(ctx, event{Kind: eventFormed})
			return
		}
		waits = max(waits, r)
	}
	for _, p := range c.state.procs {
		if waits >= 0 && p.Exit != nil && p.Exit.Code == 0 && state[p.Rank] == "" && c.state.fatal == nil {
			e := *p.Exit
			e.Code, e.How = 1, fmt.Sprintf("exited without calling Join, and rank %d waits for it", waits)
			c.state.fatal = &e
		}
	}
}

// closeAttempt publishes the end of an attempt that all launchers have ended. The next phase is
// gathering if all ranks are started again, else closing.
func (c *coordinator) closeAttempt(ctx context.Context) {
	done := c.outcome
	done.Kind, done.Hosts = eventDone, c.state.lost
	for _, l := range done.Hosts {
		for _, name := range l.lateNames {
			if as := readAdmittedAs(ctx, c.rankStore(c.attempt), name); as != "" {
				l.LetIn = append(l.LetIn, as)
			}
		}
	}
	c.publish(ctx, done)
	c.phase = closing
	if done.Restart {
		c.phase, c.attempt = gathering, c.attempt+1
	}
}

// readDecisions applies the ranks' decisions that are new in the store, in order. If the store does
// not answer, the next call continues there.
func (c *coordinator) readDecisions(ctx context.Context) {
	if c.phase != running {
		return
	}
	s := c.rankStore(c.attempt)
	for {
		key := jobstore.Generation(jobstore.World, c.decisions)
		if there, err := s.Check(ctx, jobstore.Decision(key)); err != nil || !there {
			return
		}
		d, err := agree.Learn(ctx, agree.On(s), key)
		if err != nil {
			return
		}
		c.decisions++
		c.names = nextNames(ctx, s, c.names, d)
		c.state.applyDecision(c.names)
	}
}

// publish appends an event to the attempt's events.
func (c *coordinator) publish(ctx context.Context, e event) {
	c.events++
	c.set(ctx, jobstore.Event(c.attempt, c.events), e)
}

// set writes a key. The store is in this process, so set fails only when the process
// ends.
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
