package p2p

import (
	"errors"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport"
)

// A noteLane passes notes on to other ranks, and carries out no messages.
type noteLane struct {
	transport.Messenger
	rank  int
	ranks []*Messages
}

func (l *noteLane) Handle(transport.Handler) {}

func (l *noteLane) Notify(peer int, n *transport.Note) { l.ranks[peer].Note(l.rank, n) }

// TestTransferIsNoCycle lets two ranks wait to send to each other while one of them receives a message
// whose data does not arrive. Only after the end of this receive the ranks wait in a cycle.
func TestTransferIsNoCycle(t *testing.T) {
	const timeout = time.Second
	ranks := make([]*Messages, 2)
	for r := range ranks {
		ranks[r] = New(Options{Rank: r, Size: len(ranks), Lane: &noteLane{rank: r, ranks: ranks}, Timeout: timeout})
	}
	message := func(rank, peer int, send bool) *pending {
		return &pending{s: ranks[rank], m: &engine.Message{}, t: transport.Message{Send: send, Peer: peer}}
	}
	first, second, transfer := message(0, 1, true), message(1, 0, true), message(1, 0, false)
	transfer.t.Matched.Store(true)
	if err := transfer.notice(timeout); err != nil {
		t.Fatal(err)
	}
	exchange := func() error { return errors.Join(first.notice(timeout), second.notice(timeout), first.notice(timeout)) }
	if err := exchange(); err != nil {
		t.Errorf("during the transfer: %v", err)
	}
	ranks[1].unlist(transfer)
	if err := exchange(); !errors.Is(err, engine.ErrTimeout) {
		t.Errorf("after the transfer: %v", err)
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
	_, cycle := s.handleNotes()
	arrive(engine.MessageWait{Rank: 1, Tag: 8})
	if cycle == nil || cycle.waits[0] != p.wait() {
		t.Errorf("the cycle is %+v", cycle)
	}
}
