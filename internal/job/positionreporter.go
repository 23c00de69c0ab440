package job

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/transport"
)

// lookTime is how often a rank looks whether it is stuck.
const positionInterval = 50 * time.Millisecond

// A sentry looks after a process's groups on the network. Ranks that call
// different things may all wait, and send each other nothing that would show
// it; a rank that is stuck in a call therefore tells the others where it is.
type positionReporter struct {
	j      *Job
	mu     sync.Mutex
	groups map[string]*reportedGroup
	stop   chan struct{} // nil: nobody looks
	done   chan struct{}
}

// A post is one group's.
type reportedGroup struct {
	name    string
	members []int // by their numbers in the job
	engine  *network.Engine
	busy    atomic.Bool // it is in an operation
	last    network.Position
	sent    network.Position
}

// add begins to look after a group.
func (s *positionReporter) add(name string, members []int, w *network.Engine) *reportedGroup {
	p := &reportedGroup{name: name, members: members, engine: w}
	s.j.member.HandlePositions(name, func(from int, position []byte) {
		i := slices.Index(members, from)
		if i < 0 || len(position) != transport.HeadBytes {
			return
		}
		// A disagreement is reported, which waits for an answer.
		go w.Heard(i, network.Position(position))
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

func (s *positionReporter) remove(p *reportedGroup) {
	s.j.member.StopPositions(p.name)
	s.mu.Lock()
	delete(s.groups, p.name)
	s.mu.Unlock()
}

// close ends the looking.
func (s *positionReporter) close() {
	if s.stop != nil {
		close(s.stop)
		<-s.done
	}
}

func (s *positionReporter) run() {
	defer close(s.done)
	every := s.j.cfg.Look
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

// stuck reports whether the group is where it was when it was last looked at,
// and has not said so.
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
