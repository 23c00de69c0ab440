package p2p

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// crowd is a group of ranks without data: nobody receives, and notes arrive if the receiver has room.
type crowd struct {
	room int            // the most notes that one rank has under way to another
	held map[[2]int]int // those, by sender and receiver
	all  []*Messages
}

// A seat is the lane of one rank of a crowd.
type seat struct {
	*crowd
	rank int
}

func (*seat) Handle(transport.Handler)                      {}
func (*seat) Post(*transport.Message)                       {}
func (*seat) Finish(*wait.Waiter, *transport.Message) error { return nil }

func (s *seat) Notify(peer int, n *transport.Note) {
	if pair := [2]int{s.rank, peer}; s.held[pair] < s.room {
		s.held[pair]++
		s.all[peer].Note(s.rank, n)
	}
}

// TestCycleInCrowd checks that two ranks that wait for each other are found although many others wait
// for them, and the lane has room for few notes.
func TestCycleInCrowd(t *testing.T) {
	const ranks, timeout = 100, time.Second
	for _, room := range []int{8, 1000} {
		c := &crowd{room: room, held: make(map[[2]int]int)}
		var waiting []*pending
		for r := range ranks {
			s := New(Options{
				Rank: r, Size: ranks, Lane: &seat{c, r}, ParkingLot: wait.NewParkingLot(ranks), Timeout: timeout,
				Fail: func(context.Context, error, *engine.Message) *engine.Failure { return nil },
			})
			c.all = append(c.all, s)
			m := &engine.Message{Send: true, Mem: engine.Mem{Type: kernel.Uint8}}
			if r%2 == 0 {
				m.Peer = 1
			}
			s.Post(m)
			waiting = append(waiting, m.Extra.(*pending))
		}
		// Ranks 2 and above call first in each period.
		order := append(append([]*pending{}, waiting[2:]...), waiting[0], waiting[1])
		found := false
		for period := 0; period < 100 && !found; period++ {
			for _, p := range order {
				err := p.notice(timeout)
				for r := range ranks {
					delete(c.held, [2]int{r, p.s.opt.Rank})
				}
				f := (*engine.Failure)(nil)
				if errors.As(err, &f) {
					found = true
					if f.Facts.Total != 2 {
						t.Errorf("a cycle of %d ranks", f.Facts.Total)
					}
				}
			}
		}
		if !found {
			t.Errorf("room for %d notes: no cycle was found", room)
		}

	}
}

// TestCycleIsKept checks that a cycle that was found does not change when other notes arrive.
func TestCycleIsKept(t *testing.T) {
	s := New(Options{Rank: 0, Size: 2, Lane: &noteLane{}, Timeout: time.Second})
	p := &pending{s: s, m: &engine.Message{}, t: transport.Message{Send: true, Peer: 1}, waited: time.Second}
	s.waiting = append(s.waiting, p)
	arrive := func(w engine.MessageWait) {
		var n transport.Note
		(&note{}).with(w).put(&n)
		s.Note(1, &n)
	}
	arrive(p.wait())
	_, cycle := s.handleNotes(nil)
	arrive(engine.MessageWait{Rank: 1, Tag: 8})
	if cycle == nil || cycle.waits[0] != p.wait() {
		t.Errorf("the cycle is %+v", cycle)
	}
}
