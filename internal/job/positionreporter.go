package job

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/transport"
)

// positionInterval is the default of Config.StuckInterval.
const positionInterval = 50 * time.Millisecond

// A positionReporter reports where this process is stuck in its network groups. Ranks that run
// different operations may all wait without sending each other anything that shows the difference.
// A rank that is stuck in a call therefore sends its position to the other members. mu guards
// groups, stop and done; close reads stop and done without mu, after the last add.
type positionReporter struct {
	j      *Job
	mu     sync.Mutex
	groups map[string]*reportedGroup // by name
	ended  []string                  // closed groups that still answer, at most maxClosedGroups
	stop   chan struct{}             // closed by close; nil: run was not started
	done   chan struct{}             // closed at the end of run
}

// A reportedGroup is a group whose position is reported. Only the goroutine of run uses last and sent.
type reportedGroup struct {
	j       *Job
	name    string
	members []int // ranks of the job
	engine  *network.Engine
	busy    atomic.Bool // the group is in an operation
	last    network.Position
	sent    network.Position

	closed   chan struct{} // closed when this rank has closed the group
	answered chan struct{} // receives after an answer to settle; has room for one

	mu      sync.Mutex       // guards the fields below, which belong to settle
	asked   network.Position // of this rank's last call
	missing []int            // members that have not answered
	behind  []int            // members that have closed the group before they began the call

	questions []question // of other members
}

// add begins to report the positions of a group. The first call starts the goroutine of run. s.mu guards the
// groups. Positions of other ranks arrive on a goroutine of the Member.
func (s *positionReporter) add(name string, members []int, w *network.Engine) *reportedGroup {
	p := &reportedGroup{
		j: s.j, name: name, members: members, engine: w, closed: make(chan struct{}), answered: make(chan struct{}, 1),
	}
	s.j.member.HandlePositions(name, func(from int, position []byte) {
		i := slices.Index(members, from)
		if i >= 0 && len(position) == settleBytes {
			go p.receive(i, position)
		}
		if i < 0 || len(position) != transport.HeadBytes {
			return
		}
		// CheckPosition may report a mismatch, which waits for an answer, so it must not run on the
		// Member's goroutine. Nobody waits for it. It may end after the group is closed, when
		// Engine.Fail no longer affects any operation.
		go w.CheckPosition(i, network.Position(position))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop == nil {
		s.groups, s.stop, s.done = make(map[string]*reportedGroup), make(chan struct{}), make(chan struct{})
		go s.run()
	}
	s.groups[name] = p
	return p
}

// remove ends the reports of a group that this rank closes. The group still answers whether this rank has begun a
// call; see settle.
func (s *positionReporter) remove(p *reportedGroup) {
	close(p.closed)
	p.answerClosed()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, p.name)
	s.ended = append(s.ended, p.name)
	if len(s.ended) > maxClosedGroups {
		s.j.member.StopPositions(s.ended[0])
		s.ended = s.ended[1:]
	}
}

// close ends run. No group may be added concurrently.
func (s *positionReporter) close() {
	if s.stop != nil {
		close(s.stop)
		<-s.done
	}
}

// run checks all groups every Config.StuckInterval until stop is closed, and sends the positions of
// stuck groups. It runs in a goroutine of its own.
func (s *positionReporter) run() {
	defer close(s.done)
	every := s.j.cfg.StuckInterval
	if every <= 0 {
		every = positionInterval
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		var stuck []*reportedGroup
		for _, p := range s.groups {
			if p.stuck() {
				stuck = append(stuck, p)
			}
		}
		s.mu.Unlock()
		for _, p := range stuck {
			s.j.member.SendPosition(p.name, p.members, p.sent[:])
		}
	}
}

// stuck reports whether the group has the same position as at the last check and has not sent it.
func (p *reportedGroup) stuck() bool {
	if !p.busy.Load() {
		return false
	}
	now := p.engine.Position()
	if now != p.last {
		p.last = now
		return false
	}
	if now == p.sent {
		return false
	}
	p.sent = now
	return true
}
