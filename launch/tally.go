package launch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// A tally counts the ranks of an elastic job over all its hosts and decides whether
// the job goes on. It has no I/O and no clock: the coordinator on node 0 passes in the
// launchers' heartbeats, the ranks' decisions and the time. It is for one goroutine.
//
// A launcher's registration number identifies it. The launcher of a node that was
// given up, or that has left, has no registration any more: its heartbeats change
// nothing.
type tally struct {
	min, max int           // ranks of the whole job
	lostTime time.Duration // silence after which a launcher is given up
	began    time.Time     // start of the attempt
	nodes    []node
	procs    []*process // of the attempt, in the order in which they were first reported
	members  []string   // process names of the ranks' latest decision, in rank order
	formed   bool       // the ranks have joined
	over     bool       // a rank has ended well: no process is replaced any more
	closed   bool       // the attempt has failed or finished: further ends are no losses
	fatal    *Exit      // a failure that ends the job whatever the count is
	lost     []*HostLoss
	looked   time.Time // last call of silent
}

// A node is a place for a host: its number and its ranks.
type node struct {
	ranks        int
	who          string    // the launcher, for people
	registration int64     // of its launcher; 0: it has none
	begins       int       // attempts in which this launcher has taken part
	heard        time.Time // last heartbeat
	seq          int64     // of the last heartbeat
	leaving      bool      // the launcher ends its ranks, and the job goes on without them
	ended        bool      // no process of this launcher runs or will be started in the attempt
}

// A process is one process of the attempt, as its launcher has reported it.
type process struct {
	processReport
	node    int
	member  bool          // the ranks count it, or counted it, as one of them
	behind  bool          // the ranks have gone on without it while it ran
	lostAt  time.Duration // from the start of the attempt; 0: it is not lost
	outlive *HostLoss     // the loss of its host; nil: it ended by itself
}

// A processReport is what a launcher says of one of its processes.
type processReport struct {
	Name        string `json:"name"`
	Rank        int    `json:"rank"`
	Replacement int    `json:"replacement,omitempty"`
	Exit        *Exit  `json:"exit,omitempty"` // nil: it runs
}

// A heartbeat is what a launcher tells node 0: that it lives, and all that it knows
// of its processes. Each heartbeat has the whole state, so one may get lost.
type heartbeat struct {
	Node         int             `json:"node"`
	Registration int64           `json:"registration"`
	Seq          int64           `json:"seq"`
	Epoch        int             `json:"epoch"` // the attempt of Processes and Ended
	Processes    []processReport `json:"processes"`
	Ended        bool            `json:"ended,omitempty"`   // no process runs, or will be started
	Leaving      string          `json:"leaving,omitempty"` // why this host leaves the job; "": it stays
	Left         bool            `json:"left,omitempty"`    // the last heartbeat
	Fatal        *Exit           `json:"fatal,omitempty"`   // ends the job; only node 0's launcher may say so
}

// A verdict is what the tally has decided.
type verdict struct {
	failed   *Exit  // the first failure; nil: none
	why      string // the count that ends the job, for people
	finished bool   // no rank runs, and enough have ended well
}

// start begins an attempt: the first processes of all nodes are ranks.
func (t *tally) start(now time.Time) {
	t.began, t.looked = now, now
	t.procs, t.members, t.lost, t.fatal = nil, nil, nil, nil
	t.formed, t.over, t.closed = false, false, false
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

// processName is what launchers call a process: its rank number, and which replacement
// of that rank it is. A launcher that came later does not know of all replacements that
// another has started in its place, so its registration number makes the name unique; it
// is 0 for a launcher that was there from the start.
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
func (t *tally) register(number int64, a *application, now time.Time) {
	t.nodes[a.Node] = node{ranks: a.Ranks, who: a.Who, registration: number, heard: now}
	if l := t.vacancy(a.Node); l != nil {
		l.By, l.ByAfter = a.Who, now.Sub(t.began)
	}
}

// vacancy is the loss that has left a node's place empty; nil if there was none.
func (t *tally) vacancy(node int) *HostLoss {
	for _, l := range slices.Backward(t.lost) {
		if l.Node == node && l.By == "" {
			return l
		}
	}
	return nil
}

// base is the number of a node's first rank.
func (t *tally) base(node int) (base int) {
	for i := range node {
		base += t.nodes[i].ranks
	}
	return base
}

// newcomers has a launcher start its processes in the places of others. It returns
// their replacement numbers, by place: one more than the highest that is known.
func (t *tally) newcomers(node int) []int {
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
			l.newcomers = names
			break
		}
	}
	return list
}

// hear takes a heartbeat. It reports false if that is not from the node's registered
// launcher, or is older than the last: then nothing has changed.
func (t *tally) hear(b *heartbeat, epoch int, now time.Time) bool {
	if b.Node < 0 || b.Node >= len(t.nodes) {
		return false
	}
	n := &t.nodes[b.Node]
	if b.Registration == 0 || b.Registration != n.registration || b.Seq <= n.seq {
		return false
	}
	n.heard, n.seq = now, b.Seq
	if b.Fatal != nil && b.Node == 0 && t.fatal == nil && !t.closed {
		t.fatal = b.Fatal
	}
	if b.Leaving != "" && !n.leaving {
		n.leaving = true
		t.loseHost(b.Node, b.Leaving, now)
	}
	if b.Epoch == epoch {
		n.ended = b.Ended
		for i := range b.Processes {
			t.report(b.Node, &b.Processes[i], now)
		}
	}
	if b.Left {
		n.registration, n.ended = 0, true
	}
	return true
}

// report takes what a launcher says of a process.
func (t *tally) report(node int, r *processReport, now time.Time) {
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
		p.lostAt = max(now.Sub(t.began), 1)
	case !p.behind:
		t.over = true
	}
}

// decide takes the names of the ranks' next decision.
func (t *tally) decide(names []string) {
	t.members = names
	for _, p := range t.procs {
		switch in := slices.Contains(names, p.Name); {
		case in && !p.member:
			p.member = true
			if p.Exit != nil && p.Exit.Code == 0 {
				t.over = true
			}
		case !in && p.member && p.Exit == nil:
			p.behind = true
		}
	}
}

// silent returns the nodes whose launchers have not been heard for lostTime. If the
// caller itself was stopped, that time does not count against the launchers.
func (t *tally) silent(now time.Time) (list []int) {
	if gap := now.Sub(t.looked); gap > t.lostTime/2 {
		for i := range t.nodes {
			t.nodes[i].heard = t.nodes[i].heard.Add(gap)
		}
	}
	t.looked = now
	for i := range t.nodes {
		if n := &t.nodes[i]; i > 0 && n.registration != 0 && now.Sub(n.heard) > t.lostTime {
			list = append(list, i)
		}
	}
	return list
}

// giveUp takes a node's launcher for lost, and its ranks with it.
func (t *tally) giveUp(node int, how string, now time.Time) {
	n := &t.nodes[node]
	if !n.leaving {
		t.loseHost(node, how, now)
	}
	n.registration, n.ended = 0, true
}

// loseHost notes that all running processes of a node are lost.
func (t *tally) loseHost(node int, how string, now time.Time) {
	if t.closed {
		return
	}
	l := &HostLoss{Node: node, How: how, After: now.Sub(t.began)}
	for _, p := range t.procs {
		if p.node != node || p.Exit != nil || p.lostAt > 0 {
			continue
		}
		p.lostAt, p.outlive = max(l.After, 1), l
		if p.member {
			l.Ranks = append(l.Ranks, p.Rank)
		}
	}
	t.lost = append(t.lost, l)
}

// count counts the processes that are ranks of the job, or have ended well as such,
// and those of them that run.
func (t *tally) count() (whole, running int) {
	for _, p := range t.procs {
		switch {
		case !p.member || p.behind || p.lostAt > 0:
		case p.Exit == nil:
			whole, running = whole+1, running+1
		case p.Exit.Code == 0:
			whole++
		}
	}
	return whole, running
}

// verdict decides whether the job goes on. suffered reports whether a process has
// failed because of another; whose own end is waited for until blameTime is over.
func (t *tally) verdict(now time.Time, suffered func(name string) bool) verdict {
	if t.closed {
		return verdict{}
	}
	if t.fatal != nil {
		return verdict{failed: t.fatal}
	}
	whole, running := t.count()
	first := t.firstLoss(suffered)
	switch {
	case first != nil && (!t.formed || whole < t.min):
		if first.outlive == nil && suffered(first.Name) && now.Sub(t.began)-first.lostAt < blameTime {
			return verdict{}
		}
		v := verdict{failed: first.Exit}
		if first.outlive != nil {
			v.failed = first.outlive.exit()
		}
		if t.formed {
			v.why = fmt.Sprintf("%d of %d ranks are left, and %d are needed", whole, t.max, t.min)
		}
		return v
	case running == 0:
		return verdict{finished: true}
	}
	return verdict{}
}

// firstLoss is the process whose place has been empty for longest; nil if no rank's
// place is. Processes that failed because of others come last.
func (t *tally) firstLoss(suffered func(name string) bool) *process {
	last := make(map[int]*process) // by rank number: the latest member
	for _, p := range t.procs {
		if p.member {
			last[p.Rank] = p
		}
	}
	var first *process
	blame := func(p *process) bool { return p.outlive == nil && suffered(p.Name) }
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

// settled reports whether all launchers have ended the attempt.
func (t *tally) settled() bool {
	return !slices.ContainsFunc(t.nodes, func(n node) bool { return n.registration != 0 && !n.ended })
}

// An application is a launcher that wants to be registered.
type application struct {
	Token string `json:"token"` // unique
	Node  int    `json:"node"`
	Ranks int    `json:"ranks"`
	Who   string `json:"who"` // for people

	seq int64 // last heartbeat of the node's launcher when the application arrived
}

// admit decides on an application: whether it may be registered now, or why it never
// will be. Otherwise it waits. A place is free when its launcher has left or was given
// up, and the ranks have gone on without its processes: there are never more than max.
//
// attempted says that the nodes' numbers of ranks are fixed, and running that an attempt
// is under way.
func (t *tally) admit(a *application, attempted, running bool) (ok bool, refusal string) {
	n := &t.nodes[a.Node]
	switch {
	case attempted && a.Ranks != n.ranks:
		return false, fmt.Sprintf("node %d of this job has %d ranks, not %d", a.Node, n.ranks, a.Ranks)
	case running && (t.over || t.closed):
		return false, "the job is ending"
	// One heartbeat of a launcher that was killed may still have been on its way.
	case n.registration != 0 && n.seq >= a.seq+2 && !n.leaving:
		return false, fmt.Sprintf("node %d is here already: %s", a.Node, n.who)
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

// A HostLoss is a host that an elastic job has lost, and what became of its place.
type HostLoss struct {
	Node  int           `json:"node"`
	After time.Duration `json:"after"` // from the start of the attempt
	How   string        `json:"how"`
	Ranks []int         `json:"ranks,omitempty"` // its ranks that were lost with it
	// By is the launcher that has taken the place, and ByAfter when. Empty: none has.
	By      string        `json:"by,omitempty"`
	ByAfter time.Duration `json:"byAfter,omitempty"`
	// LetIn is what the new launcher's processes became in the job, such as "rank 4 of 6".
	LetIn []string `json:"letIn,omitempty"`

	newcomers []string // names of the first processes of the new launcher
}

// String says, for people, which host was lost, how, and who has taken its place.
func (l *HostLoss) String() string {
	text := fmt.Sprintf("node %d was lost after %v: %s", l.Node, l.After.Round(time.Millisecond), l.How)
	if len(l.Ranks) > 0 {
		text += ", and with it " + engine.Ranks(l.Ranks)
	}
	if l.By == "" {
		return text + "; no host has taken its place"
	}
	text += fmt.Sprintf("; %s came after %v, and ", l.By, l.ByAfter.Round(time.Millisecond))
	if len(l.LetIn) == 0 {
		return text + "none of its ranks was let in"
	}
	return text + "was let in as " + strings.Join(l.LetIn, ", ")
}

// news is what launchers say when a host is lost.
func (t *tally) news(l *HostLoss) string {
	text := fmt.Sprintf("node %d is lost: %s", l.Node, l.How)
	if len(l.Ranks) > 0 {
		text += ", and with it " + engine.Ranks(l.Ranks)
	}
	whole, _ := t.count()
	return fmt.Sprintf("%s; %d of %d ranks are left", text, whole, t.max)
}

// exit is the loss as the first failure of a job.
func (l *HostLoss) exit() *Exit {
	return &Exit{Rank: -1, Node: l.Node, Code: 1, After: l.After, How: fmt.Sprintf("node %d is lost: %s", l.Node, l.How)}
}
