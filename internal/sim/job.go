package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/overlay"
	"github.com/tutti-go/tutti/internal/wait"
)

// A job is processes that share a control channel: all of them at first, and
// those of a later generation. Rank 0 collects them.
type job struct {
	w      *World
	name   string
	posts  []*post // by rank; nil: it has not come
	joined int
	formed bool // all have come
	closed bool // rank 0 does not wait for them any more
	groups map[string]*group
	early  []func() // ends of connections that rank 0 has noticed before all had come
}

// A post is a process's place in a job: its connections, its end of the control
// channel, and what it has learnt there.
type post struct {
	j        *job
	p        *proc
	rank     int
	up, down lane          // to rank 0, for Enter, and back
	cut      map[int]error // ranks that this one's data connections have lost
	met      bool          // rank 0 has heard of it

	node       *overlay.Node   // nil: not all ranks have come
	links      map[int][]*link // by rank, the newest last
	armed      int64           // when the event of the next tick comes; zero: none does
	performing bool            // actions of the Node are being carried out
	reports    uint64
	hurried    bool // it waits for no rank when it leaves
	leaving    bool // it says goodbye
	closed     bool // its links have ended, and nothing listens any more

	members  []*member // its sides of the job's groups
	early    map[string]*engine.Failure
	losses   []loss // in the order in which the post was notified
	departed map[int]bool

	lot   *wait.ParkingLot
	state atomic.Uint64 // see below
}

// What a process that joins waits for.
const (
	welcome = iota + 1
	refused
)

// newJob makes a job that nobody has joined.
func (w *World) newJob(name string, size int) *job {
	j := &job{w: w, name: name, posts: make([]*post, size), groups: make(map[string]*group)}
	w.jobs = append(w.jobs, j)
	return j
}

// enter gives a process its place.
func (j *job) enter(p *proc, rank int) *post {
	a := j.newPost(p, rank)
	j.posts[rank] = a
	j.joined++
	return a
}

func (j *job) newPost(p *proc, rank int) *post {
	hub := p
	if rank != 0 {
		hub = j.hub().p
	}
	a := &post{
		j: j, p: p, rank: rank, up: lane{from: p, to: hub}, down: lane{from: hub, to: p}, cut: make(map[int]error), early: make(map[string]*engine.Failure),
		links: make(map[int][]*link), departed: make(map[int]bool), lot: wait.NewScheduledParkingLot(p),
	}
	p.posts = append(p.posts, a)
	return a
}

// postIn is the process's place in a job; nil: it has none.
func (p *proc) postIn(j *job) *post {
	for _, a := range p.posts {
		if a.j == j {
			return a
		}
	}
	return nil
}

// hub is rank 0's.
func (j *job) hub() *post { return j.posts[0] }

// begin makes the group of all, when all have come, and starts the control
// channel.
func (j *job) begin() *group {
	j.formed = true
	for _, a := range j.posts {
		a.open()
	}
	for _, a := range j.posts {
		a.step(a.node.Reach)
	}
	all := make([]int, len(j.posts))
	procs := make([]*proc, len(j.posts))
	for r, a := range j.posts {
		all[r], procs[r] = r, a.p
	}
	for _, s := range j.w.net.splits {
		j.w.severe(s, procs)
	}
	for _, p := range procs {
		if p.dead {
			j.w.bury(p, procs)
		}
	}
	return j.group(j.name, all)
}

// bury has others notice that a process has died, which was on its way to them.
func (w *World) bury(p *proc, others []*proc) {
	for _, q := range others {
		if w.reset[p.rank] {
			w.later(w.net.delay(p.rank, q.rank), func() { w.end(q, p, errReset, true) })
		} else {
			w.later(w.silence(), func() { w.end(q, p, errSilent, true) })
		}
	}
}

// group is the group of that name, which is made when it is first asked for.
func (j *job) group(name string, ranks []int) *group {
	if g := j.groups[name]; g != nil {
		return g
	}
	g := &group{
		w: j.w, j: j, name: name, ranks: ranks, meshes: make([]*mesh, len(ranks)), members: make([]*member, len(ranks)),
	}
	for i, r := range ranks {
		a := j.posts[r]
		g.meshes[i] = &mesh{g: g, p: a.p, at: a, rank: i, lot: wait.NewScheduledParkingLot(a.p), peers: make(map[int]*peer)}
	}
	j.groups[name] = g
	return g
}

// end ends the connections to a rank, as another sees it.
func (j *job) end(at, of *post, err error, control bool) {
	if at == of || at.p.dead {
		return
	}
	if at.cut[of.rank] == nil {
		at.cut[of.rank] = err
		j.w.s.log.note(j.w.s.now, "end", at.p.rank, of.p.rank, 0)
		for _, m := range at.members {
			if slices.Contains(m.g.ranks, of.rank) {
				m.g.meshes[m.Rank()].tell()
			}
		}
	}
	if control {
		at.hangUp(of, err)
	}
}

// Roster is the rank's for the job of all ranks.
func (s *Seat) Roster() engine.Roster { return s.post }

// Listen begins a new job, of the generation of that name, as its rank 0. It returns
// where the others find it.
func (s *Seat) Listen(name string, size int) string {
	w := s.p.w
	j := w.newJob(name, size)
	j.enter(s.p, 0)
	return strconv.Itoa(len(w.jobs) - 1)
}

// Enter joins the job at an address as one of its ranks, when all of them do,
// and returns the rank's engine in the group of all.
func (s *Seat) Enter(ctx context.Context, addr string, rank, size int) (engine.Engine, engine.Roster, error) {
	w, p := s.p.w, s.p
	i, err := strconv.Atoi(addr)
	if err != nil || i < 1 || i >= len(w.jobs) || size != len(w.jobs[i].posts) || rank < 0 || rank >= size {
		return nil, nil, fmt.Errorf("there is no job of %d ranks at %q", size, addr)
	}
	j := w.jobs[i]
	a := j.hub()
	if rank == 0 {
		j.mayBegin()
	} else {
		a = j.newPost(p, rank)
		a.hello()
	}
	wt := wait.NewWaiter(a.lot)
	wt.Begin(ctx, 0)
	_, err = wt.AtLeast(&a.state, welcome, nil)
	wt.End()
	switch {
	case err != nil:
		a.giveUp()
		return nil, nil, &engine.AbsentError{Ranks: a.absent(), Err: fmt.Errorf("not all ranks have joined: %w", err)}
	case a.state.Load() == refused:
		a.close()
		return nil, nil, errors.New("rank 0 has ended the connection")
	}
	return a.join(j.groups[j.name]), a, nil
}

// hello tells rank 0 that this one has come.
func (a *post) hello() {
	j, hub := a.j, a.j.hub().p
	a.p.checkpoint()
	if a.p.leaving(hub) {
		j.w.net.send(&a.up, 0, func() {
			hub.receive(func() {
				a.met = true
				switch {
				case j.closed:
				case j.posts[a.rank] != nil && j.posts[a.rank].p == a.p: // it has called Shrink again
					j.w.net.send(&a.down, 0, func() { a.answer(refused) })
				case j.posts[a.rank] != nil:
					j.w.violate(fmt.Errorf("%w: rank %d and rank %d of the world are both rank %d of generation %s",
						ErrTwoSuccessors, j.posts[a.rank].p.rank, a.p.rank, a.rank, j.name))
				default:
					j.posts[a.rank] = a
					j.joined++
					j.mayBegin()
				}
			})
		})
	}
	a.p.checkpoint()
}

// mayBegin has rank 0 tell all that all have come.
func (j *job) mayBegin() {
	if j.joined < len(j.posts) || j.formed {
		return
	}
	j.w.s.log.note(j.w.s.now, "formed", j.hub().p.rank, len(j.posts), 0)
	for _, o := range j.w.jobs {
		if o != j && o.formed && o.name == j.name {
			j.w.violate(fmt.Errorf("%w: generation %s begins twice: with rank %d of the world as its first, and with rank %d",
				ErrTwoSuccessors, j.name, o.hub().p.rank, j.hub().p.rank))
		}
	}
	j.begin()
	for _, a := range j.posts {
		j.w.net.send(&a.down, 0, func() { a.p.receive(func() { a.answer(welcome) }) })
	}
	for _, notice := range j.early {
		notice()
	}
}

// answer ends a process's wait to be let in.
func (a *post) answer(state uint64) {
	if a.state.CompareAndSwap(0, state) {
		a.lot.Wake(&a.state)
	}
}

// absent are the ranks that are known not to have come: rank 0 knows of all, the
// others of rank 0.
func (a *post) absent() (list []int) {
	for r, o := range a.j.posts {
		if a.rank == 0 && o == nil || a.rank != 0 && r == 0 && !a.met {
			list = append(list, r)
		}
	}
	return list
}

// giveUp is the end of a process's patience: its connections end.
func (a *post) giveUp() {
	j := a.j
	a.state.Store(refused)
	a.close()
	if a.rank == 0 && !j.formed {
		j.closed = true
		for _, o := range j.posts[1:] {
			if o != nil {
				j.w.net.send(&o.down, 0, func() { o.answer(refused) })
			}
		}
		return
	}
	for _, o := range j.posts {
		if o != nil && o != a {
			j.w.later(j.w.net.delay(a.p.rank, o.p.rank), func() { j.end(o, a, errReset, true) })
		}
	}
}
