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
const lookTime = 50 * time.Millisecond

// A sentry looks after a process's groups on the network. Ranks that call
// different things may all wait, and send each other nothing that would show
// it; a rank that is stuck in a call therefore tells the others where it is.
type sentry struct {
	j     *Job
	mu    sync.Mutex
	posts map[string]*post
	stop  chan struct{} // nil: nobody looks
	done  chan struct{}
}

// A post is one group's.
type post struct {
	name    string
	members []int // by their numbers in the job
	w       *network.Engine
	busy    atomic.Bool // it is in an operation
	was     network.Position
	told    network.Position
}

// add begins to look after a group.
func (s *sentry) add(name string, members []int, w *network.Engine) *post {
	p := &post{name: name, members: members, w: w}
	s.j.member.Follow(name, func(from int, position []byte) {
		i := slices.Index(members, from)
		if i < 0 || len(position) != transport.HeadBytes {
			return
		}
		// A disagreement is reported, which waits for an answer.
		go w.CheckPosition(i, network.Position(position))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop == nil {
		s.posts, s.stop, s.done = make(map[string]*post), make(chan struct{}), make(chan struct{})
		go s.look()
	}
	s.posts[name] = p
	return p
}

func (s *sentry) remove(p *post) {
	s.j.member.Unfollow(p.name)
	s.mu.Lock()
	delete(s.posts, p.name)
	s.mu.Unlock()
}

// close ends the looking.
func (s *sentry) close() {
	if s.stop != nil {
		close(s.stop)
		<-s.done
	}
}

func (s *sentry) look() {
	defer close(s.done)
	every := s.j.cfg.Look
	if every <= 0 {
		every = lookTime
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
		var stuck []*post
		for _, p := range s.posts {
			if p.stuck() {
				stuck = append(stuck, p)
			}
		}
		s.mu.Unlock()
		for _, p := range stuck {
			s.j.member.Tell(p.name, p.members, p.told[:])
		}
	}
}

// stuck reports whether the group is where it was when it was last looked at,
// and has not said so.
func (p *post) stuck() bool {
	if !p.busy.Load() {
		return false
	}
	now := p.w.Position()
	if now != p.was {
		p.was = now
		return false
	}
	if now == p.told {
		return false
	}
	p.told = now
	return true
}
