package shmem

import (
	"bytes"
	"testing"

	"github.com/tutti-go/tutti/internal/transport"
)

// exchange posts a receive from a rank and a send to it, together.
func (r *rank) exchange(peer, tag int, body []byte) (in, out *transport.Message) {
	in = &transport.Message{Peer: peer, Tag: tag, Kind: uint8(tag), Body: make([]byte, len(body))}
	out = &transport.Message{Send: true, Peer: peer, Tag: tag, Kind: uint8(tag), Body: body}
	in.Next = out
	r.Post(in)
	return in, out
}

// TestReady exchanges messages. A send completes when the other rank's record shows that its receive
// waits, without a report that the data is taken.
func TestReady(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.ranks[0], w.ranks[1]
	const rounds = 5 // fewer than records that are consumed together
	for i := range rounds {
		inA, outA := a.exchange(1, 1, pattern(16, i))
		inB, outB := b.exchange(0, 1, pattern(16, i+100))
		for _, m := range []*transport.Message{inA, outA} {
			a.finish(t, m)
		}
		for _, m := range []*transport.Message{inB, outB} {
			b.finish(t, m)
		}
		if !bytes.Equal(inA.Body, outB.Body) || !bytes.Equal(inB.Body, outA.Body) {
			t.Errorf("round %d: wrong data", i)
		}
	}
	for _, r := range w.ranks {
		p := &r.peers[1-r.opt.Rank]
		if n := p.out.completed.Load(); n != 0 {
			t.Errorf("rank %d has reported %d messages", r.opt.Rank, n)
		}
		if p.taken != rounds || p.numSends != 0 || p.numWatched != 0 {
			t.Errorf("rank %d: %d messages taken, %d and %d sends", r.opt.Rank, p.taken, p.numSends, p.numWatched)
		}
	}
	// The next report counts them.
	out := a.postSend(1, 1, pattern(16, 1))
	b.finish(t, b.postReceive(0, 1, make([]byte, 16)))
	a.finish(t, out)
	if n := b.peers[0].out.completed.Load(); n != rounds+1 {
		t.Errorf("%d messages reported", n)
	}
}

// TestReadyFirst sends a message whose receive is known to wait.
func TestReadyFirst(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.ranks[0], w.ranks[1]
	inB, outB := b.exchange(0, 1, pattern(16, 1))
	a.finish(t, a.postReceive(1, 1, make([]byte, 16)))
	if out := a.exchangeOut(1, 1, pattern(16, 2)); !out.Done() {
		t.Error("the send is not complete")
	}
	b.finish(t, outB)
	b.finish(t, inB)
	if !bytes.Equal(inB.Body, pattern(16, 2)) {
		t.Error("wrong data")
	}
}

// exchangeOut is postSend with a receive open, which is never matched.
func (r *rank) exchangeOut(to, tag int, body []byte) *transport.Message {
	r.postReceive(to, tag+1000, nil)
	return r.postSend(to, tag, body)
}

// TestNotReady sends messages of which the other rank's record says nothing. They complete by a report.
func TestNotReady(t *testing.T) {
	cases := map[string]struct {
		tag, length int  // of the message
		any         bool // a receive from any rank was posted before
		patient     bool // the receive can end without a message
		alone       bool // the sender has no receive, and does not look at records
	}{
		"another length":     {tag: 1, length: 8},
		"another tag":        {tag: 2, length: 16},
		"a receive from any": {tag: 1, length: 16, any: true},
		"a patient receive":  {tag: 1, length: 16, patient: true},
		"a send alone":       {tag: 1, length: 16, alone: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, nil)
			a, b := w.ranks[0], w.ranks[1]
			var first *transport.Message
			if c.any {
				first = b.postReceive(transport.AnyRank, 1, make([]byte, 16))
			}
			in := &transport.Message{Peer: 0, Tag: 1, Kind: 1, Body: make([]byte, 16), Patient: c.patient}
			in.Next = &transport.Message{Send: true, Peer: 0, Tag: 1, Kind: 1, Body: pattern(16, 1)}
			outB := in.Next
			b.Post(in)
			if c.tag == 2 { // the message fits no posted receive
				first = b.postReceive(0, 2, make([]byte, 16))
			}
			var out *transport.Message
			if c.alone {
				out = a.postSend(1, c.tag, pattern(c.length, 2))
			} else {
				a.finish(t, a.postReceive(1, 1, make([]byte, 16)))
				out = a.exchangeOut(1, c.tag, pattern(c.length, 2))
			}
			if out.Done() {
				t.Fatal("the send is complete")
			}
			if first == nil {
				first = in
			}
			b.finish(t, first)
			a.finish(t, out)
			if !bytes.Equal(first.Body[:c.length], pattern(c.length, 2)) {
				t.Error("wrong data")
			}
			if c.alone {
				a.finish(t, a.postReceive(1, 1, make([]byte, 16)))
			}
			b.finish(t, outB)
		})
	}
}

// TestReadyCorrupt reads a record about a message far ahead.
func TestReadyCorrupt(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.ranks[0], w.ranks[1]
	b.exchange(0, 1, pattern(16, 1))
	b.peers[0].entry(b.peers[0].outRing, 0).ready = 3
	m := a.postReceive(1, 1, make([]byte, 16))
	if err := a.Finish(a.waiter(t.Context(), deadline), m); err == nil {
		t.Error("no error")
	}
}
