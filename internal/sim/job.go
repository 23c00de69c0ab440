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

// A job is a set of processes with a control channel: all processes at first, and
// those of a later generation after Shrink or Grow. Rank 0 admits the others.
type job struct {
	w            *World
	name         string
	participants []*participant // by rank; nil: has not joined
	joined       int
	formed       bool // all ranks have joined
	closed       bool // rank 0 does not wait for the others any more
	groups       map[string]*group
	early        []func() // ends of connections that rank 0 has detected before all ranks had joined
}

// A participant is a process's state in a job: its connections, its end of the
// control channel, and what it has learned from it.
type participant struct {
	j            *job
	p            *proc
	rank         int
	up, down     lane          // to rank 0, for Enter, and back
	cut          map[int]error // by rank: why this rank's data connections to that rank have ended
	knownToRank0 bool          // its request to join has arrived at rank 0

	node        *overlay.Node          // nil: not all ranks have joined
	links       map[int][]*controlLink // by rank, the newest last
	armed       int64                  // virtual time of the next tick's event; zero: none
	performing  bool                   // perform is running
	reports     uint64
	leaveAtOnce bool // does not wait for other ranks when it leaves
	leaving     bool // is announcing its departure
	closed      bool // its links have ended, and it accepts no connections

	members  []*member                  // its engines in the job's groups
	early    map[string]*engine.Failure // by group: first causes that came before the group's engine was made
	losses   []loss                     // in the order of notification
	departed map[int]bool

	lot   *wait.ParkingLot
	state atomic.Uint64 // welcome or refused; zero: no answer yet
}

// Answers to a process that joins.
const (
	welcome = iota + 1
	refused
)

// newJob makes a job without participants.
func (w *World) newJob(name string, size int) *job {
	j := &job{w: w, name: name, participants: make([]*participant, size), groups: make(map[string]*group)}
	w.jobs = append(w.jobs, j)
	return j
}

// enter adds a process to the job.
func (j *job) enter(p *proc, rank int) *participant {
	a := j.newParticipant(p, rank)
	j.participants[rank] = a
	j.joined++
	return a
}

func (j *job) newParticipant(p *proc, rank int) *participant {
	hub := p
	if rank != 0 {
		hub = j.rank0().p
	}
	a := &participant{
		j: j, p: p, rank: rank, up: lane{from: p, to: hub}, down: lane{from: hub, to: p}, cut: make(map[int]error), early: make(map[string]*engine.Failure),
		links: make(map[int][]*controlLink), departed: make(map[int]bool), lot: wait.NewScheduledParkingLot(p),
	}
	p.participants = append(p.participants, a)
	return a
}

// participantIn returns the process's participant in a job, or nil.
func (p *proc) participantIn(j *job) *participant {
	for _, a := range p.participants {
		if a.j == j {
			return a
		}
	}
	return nil
}

// rank0 returns the participant of rank 0.
func (j *job) rank0() *participant { return j.participants[0] }

// begin makes the group of all ranks, when all have joined, and starts the control
// channel.
func (j *job) begin() *group {
	j.formed = true
	for _, a := range j.participants {
		a.open()
	}
	for _, a := range j.participants {
		a.step(a.node.Reach)
	}
	all := make([]int, len(j.participants))
	procs := make([]*proc, len(j.participants))
	for r, a := range j.participants {
		all[r], procs[r] = r, a.p
	}
	for _, s := range j.w.net.partitions {
		j.w.cutAcross(s, procs)
	}
	for _, p := range procs {
		if p.dead {
			j.w.announceDeath(p, procs)
		}
	}
	return j.group(j.name, all)
}

// announceDeath makes other processes detect that a process has died while it was
// joining.
func (w *World) announceDeath(p *proc, others []*proc) {
	for _, q := range others {
		if w.reset[p.rank] {
			w.later(w.net.delay(p.rank, q.rank), func() { w.end(q, p, errReset, true) })
		} else {
			w.later(w.hostTimeout(), func() { w.end(q, p, errSilent, true) })
		}
	}
}

// group returns the group with a name, and makes it on the first call.
func (j *job) group(name string, ranks []int) *group {
	if g := j.groups[name]; g != nil {
		return g
	}
	g := &group{
		w: j.w, j: j, name: name, ranks: ranks, meshes: make([]*mesh, len(ranks)), members: make([]*member, len(ranks)),
	}
	for i, r := range ranks {
		a := j.participants[r]
		g.meshes[i] = &mesh{g: g, p: a.p, at: a, rank: i, lot: wait.NewScheduledParkingLot(a.p), peers: make(map[int]*peer)}
	}
	j.groups[name] = g
	return g
}

// end ends the data connections to a rank, as another rank sees it, and with
// control also the control connections. Only the first error is kept. The waits of
// the rank's groups that contain the lost rank check again.
func (j *job) end(at, of *participant, err error, control bool) {
	if at == of || at.p.dead {
		return
	}
	if at.cut[of.rank] == nil {
		at.cut[of.rank] = err
		j.w.s.log.note(j.w.s.now, "end", at.p.rank, of.p.rank, 0)
		for _, m := range at.members {
			if slices.Contains(m.g.ranks, of.rank) {
				m.g.meshes[m.Rank()].notify()
			}
		}
	}
	if control {
		at.hangUp(of, err)
	}
}

// Roster returns the rank's Roster for the job of all ranks.
func (s *Rank) Roster() engine.Roster { return s.participant }

// Listen begins a new job, of the generation with that name, as its rank 0. It
// returns the address for Enter.
func (s *Rank) Listen(name string, size int) string {
	w := s.p.w
	j := w.newJob(name, size)
	j.enter(s.p, 0)
	return strconv.Itoa(len(w.jobs) - 1)
}

// Enter joins the job at an address as one of its ranks. It returns when all ranks
// have joined, with the rank's engine in the group of all ranks.
func (s *Rank) Enter(ctx context.Context, addr string, rank, size int) (engine.Engine, engine.Roster, error) {
	w, p := s.p.w, s.p
	i, err := strconv.Atoi(addr)
	if err != nil || i < 1 || i >= len(w.jobs) || size != len(w.jobs[i].participants) || rank < 0 || rank >= size {
		return nil, nil, fmt.Errorf("there is no job of %d ranks at %q", size, addr)
	}
	j := w.jobs[i]
	a := j.rank0()
	if rank == 0 {
		j.maybeBegin()
	} else {
		a = j.newParticipant(p, rank)
		a.hello()
	}
	wt := wait.NewWaiter(a.lot)
	wt.Begin(ctx, 0)
	_, err = wt.AtLeast(&a.state, welcome, nil)
	wt.End()
	switch {
	case err != nil:
		a.giveUpJoining()
		return nil, nil, &engine.AbsentError{Ranks: a.absent(), Err: fmt.Errorf("not all ranks have joined: %w", err)}
	case a.state.Load() == refused:
		a.close()
		return nil, nil, errors.New("rank 0 has ended the connection")
	}
	return a.join(j.groups[j.name]), a, nil
}

// hello tells rank 0 that this rank joins. It does not wait for the answer, for
// which Enter waits. Two processes that join as the same rank violate an invariant
// of the run.
func (a *participant) hello() {
	j, hub := a.j, a.j.rank0().p
	a.p.checkpoint()
	if a.p.beforeSend(hub) {
		j.w.net.send(&a.up, 0, func() {
			hub.receive(func() {
				a.knownToRank0 = true
				switch {
				case j.closed: // rank 0 has given up and answers nobody; Enter ends with its context
				case j.participants[a.rank] != nil && j.participants[a.rank].p == a.p: // the process has called Shrink again
					a.refuse()
				case j.participants[a.rank] != nil:
					j.w.violate(fmt.Errorf("%w: rank %d and rank %d of the world are both rank %d of generation %s",
						ErrTwoSuccessors, j.participants[a.rank].p.rank, a.p.rank, a.rank, j.name))
				default:
					j.participants[a.rank] = a
					j.joined++
					j.maybeBegin()
				}
			})
		})
	}
	a.p.checkpoint()
}

// maybeBegin starts the control channel and notifies all ranks, once all have
// joined. A second job of the same generation is recorded as a violation.
func (j *job) maybeBegin() {
	if j.joined < len(j.participants) || j.formed {
		return
	}
	j.w.s.log.note(j.w.s.now, "formed", j.rank0().p.rank, len(j.participants), 0)
	for _, o := range j.w.jobs {
		if o != j && o.formed && o.name == j.name {
			j.w.violate(fmt.Errorf("%w: generation %s begins twice: with rank %d of the world as its first, and with rank %d",
				ErrTwoSuccessors, j.name, o.rank0().p.rank, j.rank0().p.rank))
		}
	}
	j.begin()
	for _, a := range j.participants {
		j.w.net.send(&a.down, 0, func() { a.p.receive(func() { a.answer(welcome) }) })
	}
	for _, notice := range j.early {
		notice()
	}
}

// refuse sends rank 0's refusal to a process that joins.
func (a *participant) refuse() {
	a.j.w.net.send(&a.down, 0, func() { a.p.receive(func() { a.answer(refused) }) })
}

// answer ends a process's wait for admission.
func (a *participant) answer(state uint64) {
	if a.state.CompareAndSwap(0, state) {
		a.lot.Wake(&a.state)
	}
}

// absent returns the ranks that are known not to have joined: rank 0 knows about
// all ranks, the others about rank 0.
func (a *participant) absent() (list []int) {
	for r, o := range a.j.participants {
		if a.rank == 0 && o == nil || a.rank != 0 && r == 0 && !a.knownToRank0 {
			list = append(list, r)
		}
	}
	return list
}

// giveUpJoining ends a process's attempt to join: its connections end. If rank 0
// gives up before all have joined, it refuses all ranks.
func (a *participant) giveUpJoining() {
	j := a.j
	a.state.Store(refused)
	a.close()
	if a.rank == 0 && !j.formed {
		j.closed = true
		for _, o := range j.participants[1:] {
			if o != nil {
				o.refuse()
			}
		}
		return
	}
	for _, o := range j.participants {
		if o != nil && o != a {
			j.w.later(j.w.net.delay(a.p.rank, o.p.rank), func() { j.end(o, a, errReset, true) })
		}
	}
}
