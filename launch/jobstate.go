package launch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// A jobState counts the ranks of an elastic job over all its hosts and decides whether
// the job continues. It has no I/O and no clock: the coordinator passes in the
// launchers' heartbeats, the ranks' decisions and the time. It is not safe for
// concurrent use.
//
// A registration number identifies a launcher. A launcher that was declared lost, or
// that has left, has no registration: jobState ignores its heartbeats.
type jobState struct {
	min, max  int           // bounds of the number of ranks in the whole job
	lostTime  time.Duration // time without heartbeats after which a launcher is lost
	started   time.Time     // start of the attempt
	nodes     []node
	procs     []*process // of the attempt, in the order in which they were first reported
	members   []string   // process names of the ranks' latest decision, in rank order
	formed    bool       // the ranks have joined
	succeeded bool       // a rank exited with code 0: no process is replaced any more
	closed    bool       // the attempt has failed or finished: further exits are not losses
	fatal     *Exit      // a failure that ends the job whatever the count is
	lost      []*HostLoss
	lastCheck time.Time // last call of silent
}

// A node is the place of one host in the job.
type node struct {
	ranks         int
	launcher      string    // its launcher, for people
	registration  int64     // of its launcher; 0: there is none
	starts        int       // start messages sent to this launcher
	lastHeartbeat time.Time // last heartbeat
	seq           int64     // of the last heartbeat
	leaving       bool      // the launcher ends its ranks, and the job continues without them
	ended         bool      // the launcher runs no process in the attempt and starts none
}

// A process is one process of the attempt, as reported by its launcher.
type process struct {
	processReport
	node     int
	member   bool          // the ranks count it, or counted it, as a rank
	excluded bool          // the ranks continued without it while it ran
	lostAt   time.Duration // from the start of the attempt; 0: it is not lost
	hostLoss *HostLoss     // the loss of its host; nil: the process exited by itself
}

// A processReport is a launcher's report of one of its processes.
type processReport struct {
	Name        string `json:"name"`
	Rank        int    `json:"rank"`
	Replacement int    `json:"replacement,omitempty"`
	Exit        *Exit  `json:"exit,omitempty"` // nil: the process runs
}

// A heartbeat tells node 0 that a launcher is alive and the state of its processes.
// Each heartbeat carries the whole state, so that a heartbeat may get lost.
type heartbeat struct {
	Node         int             `json:"node"`
	Registration int64           `json:"registration"`
	Seq          int64           `json:"seq"`
	Attempt      int             `json:"attempt"` // the attempt of Processes and Ended
	Processes    []processReport `json:"processes"`
	Ended        bool            `json:"ended,omitempty"`   // no process runs or will be started
	Leaving      string          `json:"leaving,omitempty"` // why this host leaves the job; "": it stays
	Left         bool            `json:"left,omitempty"`    // this is the last heartbeat
	Fatal        *Exit           `json:"fatal,omitempty"`   // ends the job; valid from node 0's launcher only
}

// A verdict is a decision about the attempt.
type verdict struct {
	failed   *Exit  // the first failure; nil: none
	why      string // the count that ends the job, for people; "": not by count
	finished bool   // no rank runs, and enough exited with code 0
}

// start begins an attempt. The first processes of all nodes are its ranks.
func (t *jobState) start(now time.Time) {
	t.started, t.lastCheck = now, now
	t.procs, t.members, t.lost, t.fatal = nil, nil, nil, nil
	t.formed, t.succeeded, t.closed = false, false, false
	number := 0
	for i := range t.nodes {
		t.nodes[i].ended = false
		for range t.nodes[i].ranks {
			name := processName(number, 0, 0)
			t.procs = append(t.procs, &process{processReport: processReport{Name: name, Rank: number}, node: i, member: true})
			t.members = append(t.members, name)
			number++
		}
	}
}

// processName returns the unique name of a process: its rank number, and its
// replacement number. A launcher that joined a running job does not know all
// replacements that its predecessor started, so its registration number makes the name
// unique. late is that number, or 0 for a launcher that started with the job.
func processName(rank, replacement int, late int64) string {
	switch {
	case late > 0:
		return fmt.Sprintf("%d.%d-%d", rank, replacement, late)
	case replacement > 0:
		return fmt.Sprintf("%d.%d", rank, replacement)
	}
	return strconv.Itoa(rank)
}

// register makes a launcher the one of a node.
func (t *jobState) register(number int64, a *application, now time.Time) {
	t.nodes[a.Node] = node{ranks: a.Ranks, launcher: a.Who, registration: number, lastHeartbeat: now}
	if l := t.unfilledLoss(a.Node); l != nil {
		l.By, l.ByAfter = a.Who, now.Sub(t.started)
	}
}

// unfilledLoss returns the loss of a node that has no new launcher yet; nil if there is
// none.
func (t *jobState) unfilledLoss(node int) *HostLoss {
	for _, l := range slices.Backward(t.lost) {
		if l.Node == node && l.By == "" {
			return l
		}
	}
	return nil
}

// base returns the number of a node's first rank.
func (t *jobState) base(node int) (base int) {
	for i := range node {
		base += t.nodes[i].ranks
	}
	return base
}

// addReplacements adds the processes of a launcher that joins a running job. It returns
// their replacement numbers, by local rank: one more than the highest known.
func (t *jobState) addReplacements(node int) []int {
	base := t.base(node)
	list := make([]int, t.nodes[node].ranks)
	var names []string
	for i := range list {
		list[i] = 1
		for _, p := range t.procs {
			if p.Rank == base+i {
				list[i] = max(list[i], p.Replacement+1)
			}
		}
		name := processName(base+i, list[i], t.nodes[node].registration)
		t.procs = append(t.procs, &process{processReport: processReport{Name: name, Rank: base + i, Replacement: list[i]}, node: node})
		names = append(names, name)
	}
	for _, l := range slices.Backward(t.lost) {
		if l.Node == node {
			l.lateNames = names
			break
		}
	}
	return list
}

// handleHeartbeat applies a heartbeat. It returns false and changes nothing if the
// heartbeat is not from the node's registered launcher, or is older than the last one.
func (t *jobState) handleHeartbeat(b *heartbeat, attempt int, now time.Time) bool {
	if b.Node < 0 || b.Node >= len(t.nodes) {
		return false
	}
	n := &t.nodes[b.Node]
	if b.Registration == 0 || b.Registration != n.registration || b.Seq <= n.seq {
		return false
	}
	n.lastHeartbeat, n.seq = now, b.Seq
	if b.Fatal != nil && b.Node == 0 && t.fatal == nil && !t.closed {
		t.fatal = b.Fatal
	}
	if b.Leaving != "" && !n.leaving {
		n.leaving = true
		t.loseHost(b.Node, b.Leaving, now)
	}
	if b.Attempt == attempt {
		n.ended = b.Ended
		for i := range b.Processes {
			t.recordReport(b.Node, &b.Processes[i], now)
		}
	}
	if b.Left {
		n.registration, n.ended = 0, true
	}
	return true
}

// recordReport applies a launcher's report of a process. Only the first exit of a process counts: a
// member that failed is lost, and a member that exited with code 0 means that no process is
// replaced any more.
func (t *jobState) recordReport(node int, r *processReport, now time.Time) {
	i := slices.IndexFunc(t.procs, func(p *process) bool { return p.Name == r.Name })
	if i < 0 {
		p := &process{processReport: *r, node: node, member: slices.Contains(t.members, r.Name)}
		p.Exit = nil
		i, t.procs = len(t.procs), append(t.procs, p)
	}
	p := t.procs[i]
	if r.Exit == nil || p.Exit != nil || p.node != node || p.lostAt > 0 {
		return
	}
	p.Exit = r.Exit
	switch {
	case !p.member || t.closed:
	case p.Exit.Code != 0:
		p.lostAt = max(now.Sub(t.started), 1)
	case !p.excluded:
		t.succeeded = true
	}
}

// applyDecision takes the process names of the ranks' next decision.
func (t *jobState) applyDecision(names []string) {
	t.members = names
	for _, p := range t.procs {
		switch in := slices.Contains(names, p.Name); {
		case in && !p.member:
			p.member = true
			if p.Exit != nil && p.Exit.Code == 0 {
				t.succeeded = true
			}
		case !in && p.member && p.Exit == nil:
			p.excluded = true
		}
	}
}

// silent returns the nodes whose launchers have sent no heartbeat for lostTime. Time in
// which the coordinator itself was stopped does not count.
func (t *jobState) silent(now time.Time) (list []int) {
	if gap := now.Sub(t.lastCheck); gap > t.lostTime/2 {
		for i := range t.nodes {
			t.nodes[i].lastHeartbeat = t.nodes[i].lastHeartbeat.Add(gap)
		}
	}
	t.lastCheck = now
	for i := range t.nodes {
		if n := &t.nodes[i]; i > 0 && n.registration != 0 && now.Sub(n.lastHeartbeat) > t.lostTime {
			list = append(list, i)
		}
	}
	return list
}

// declareLost removes a node's launcher, and counts its ranks as lost.
func (t *jobState) declareLost(node int, how string, now time.Time) {
	n := &t.nodes[node]
	if !n.leaving {
		t.loseHost(node, how, now)
	}
	n.registration, n.ended = 0, true
}

// loseHost records the loss of all running processes of a node. It does nothing once the attempt
// has failed or finished.
func (t *jobState) loseHost(node int, how string, now time.Time) {
	if t.closed {
		return
	}
	l := &HostLoss{Node: node, How: how, After: now.Sub(t.started)}
	for _, p := range t.procs {
		if p.node != node || p.Exit != nil || p.lostAt > 0 {
			continue
		}
		p.lostAt, p.hostLoss = max(l.After, 1), l
		if p.member {
			l.Ranks = append(l.Ranks, p.Rank)
		}
	}
	t.lost = append(t.lost, l)
}

// count counts the processes that are ranks of the job. remaining also counts ranks
// that exited with code 0; running does not.
func (t *jobState) count() (remaining, running int) {
	for _, p := range t.procs {
		switch {
		case !p.member || p.excluded || p.lostAt > 0:
		case p.Exit == nil:
			remaining, running = remaining+1, running+1
		case p.Exit.Code == 0:
			remaining++
		}
	}
	return remaining, running
}

// verdict decides whether the job continues, and changes nothing. failedByPeer reports whether a
// process blames another rank for its failure. verdict then waits for the other rank's exit: it
// returns the empty verdict until blameTime has passed.
func (t *jobState) verdict(now time.Time, failedByPeer func(name string) bool) verdict {
	if t.closed {
		return verdict{}
	}
	if t.fatal != nil {
		return verdict{failed: t.fatal}
	}
	remaining, running := t.count()
	first := t.firstLoss(failedByPeer)
	switch {
	case first != nil && (!t.formed || remaining < t.min):
		if first.hostLoss == nil && failedByPeer(first.Name) && now.Sub(t.started)-first.lostAt < blameTime {
			return verdict{}
		}
		v := verdict{failed: first.Exit}
		if first.hostLoss != nil {
			v.failed = first.hostLoss.exit()
		}
		if t.formed {
			v.why = fmt.Sprintf("%d of %d ranks are left, and %d are needed", remaining, t.max, t.min)
		}
		return v
	case running == 0:
		return verdict{finished: true}
	}
	return verdict{}
}

// firstLoss returns the process of the rank that has been without a running process for
// the longest time; nil if there is none. Processes that blame another rank come last.
func (t *jobState) firstLoss(failedByPeer func(name string) bool) *process {
	last := make(map[int]*process) // by rank number: the latest member
	for _, p := range t.procs {
		if p.member {
			last[p.Rank] = p
		}
	}
	var first *process
	blame := func(p *process) bool { return p.hostLoss == nil && failedByPeer(p.Name) }
	for _, p := range t.procs {
		if p.lostAt == 0 || last[p.Rank] != p {
			continue
		}
		if first == nil || blame(first) && !blame(p) || blame(first) == blame(p) && p.lostAt < first.lostAt {
			first = p
		}
	}
	return first
}

// allEnded reports whether all launchers have ended the attempt.
func (t *jobState) allEnded() bool {
	return !slices.ContainsFunc(t.nodes, func(n node) bool { return n.registration != 0 && !n.ended })
}

// An application is a launcher's request to be registered.
type application struct {
	Token string `json:"token"` // unique
	Node  int    `json:"node"`
	Ranks int    `json:"ranks"`
	Who   string `json:"who"` // for people

	seq int64 // last heartbeat of the node's launcher when the application arrived
}

// admit decides on an application: it may be registered now, is refused for a reason,
// or must wait. A place is free when its launcher has left or was declared lost, and
// the ranks have continued without its processes. There are therefore never more than
// max ranks.
//
// attempted means that the nodes' numbers of ranks are fixed. running means that an
// attempt is in progress.
func (t *jobState) admit(a *application, attempted, running bool) (ok bool, refusal string) {
	n := &t.nodes[a.Node]
	switch {
	case attempted && a.Ranks != n.ranks:
		return false, fmt.Sprintf("node %d of this job has %d ranks, not %d", a.Node, n.ranks, a.Ranks)
	case running && (t.succeeded || t.closed):
		return false, "the job is ending"
	// One heartbeat of a launcher that was killed may still be in the queue.
	case n.registration != 0 && n.seq >= a.seq+2 && !n.leaving:
		return false, fmt.Sprintf("node %d is already in the job: %s", a.Node, n.launcher)
	case n.registration != 0:
		return false, ""
	}
	for _, p := range t.procs {
		if running && p.node == a.Node && p.Exit == nil && slices.Contains(t.members, p.Name) {
			return false, ""
		}
	}
	return true, ""
}

// A HostLoss is a host that an elastic job lost, and its replacement.
type HostLoss struct {
	Node  int           `json:"node"`
	After time.Duration `json:"after"` // from the start of the attempt
	How   string        `json:"how"`
	Ranks []int         `json:"ranks,omitempty"` // ranks that were lost with the host
	// By is the new launcher, and ByAfter the time of its registration. "": there is
	// none.
	By      string        `json:"by,omitempty"`
	ByAfter time.Duration `json:"byAfter,omitempty"`
	// LetIn are the ranks that the new launcher's processes got, such as "rank 4 of 6".
	LetIn []string `json:"letIn,omitempty"`

	lateNames []string // names of the new launcher's first processes
}

// String says, for people, which host was lost, why, and what replaced it.
func (l *HostLoss) String() string {
	text := fmt.Sprintf("node %d was lost after %v: %s", l.Node, l.After.Round(time.Millisecond), l.How)
	if len(l.Ranks) > 0 {
		text += ", and with it " + engine.Ranks(l.Ranks)
	}
	if l.By == "" {
		return text + "; no host replaced it"
	}
	text += fmt.Sprintf("; %s replaced it after %v, and ", l.By, l.ByAfter.Round(time.Millisecond))
	if len(l.LetIn) == 0 {
		return text + "none of its ranks was admitted"
	}
	return text + "was admitted as " + strings.Join(l.LetIn, ", ")
}

// lossMessage returns the line that launchers print when a host is lost.
func (t *jobState) lossMessage(l *HostLoss) string {
	text := fmt.Sprintf("node %d is lost: %s", l.Node, l.How)
	if len(l.Ranks) > 0 {
		text += ", and with it " + engine.Ranks(l.Ranks)
	}
	remaining, _ := t.count()
	return fmt.Sprintf("%s; %d of %d ranks are left", text, remaining, t.max)
}

// exit returns the loss as the first failure of a job.
func (l *HostLoss) exit() *Exit {
	return &Exit{Rank: -1, Node: l.Node, Code: 1, After: l.After, How: fmt.Sprintf("node %d is lost: %s", l.Node, l.How)}
}
