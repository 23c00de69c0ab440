package p2p

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport"
)

// Ranks that wait for each other's messages in a cycle wait forever. They find the cycle by notes,
// as in the edge-chasing algorithm of Chandy, Misra and Haas: a rank whose message has waited for
// Options.Timeout sends a note to the peer of the message. A rank that receives a note, and waits
// itself, adds its own wait to the note and passes it on. A note that comes back to its origin has
// visited a cycle. A receive from any rank, and a message whose other side is known, is no part of
// a cycle. While the data of such a message is on the way, its rank sends no notes and passes none on.

// A note is a transport.Note in decoded form: the number of ranks that it has visited, and the waits
// of the first ones, from its origin on. A note that has visited a rank in a cycle without its origin
// is dropped there.
type note struct {
	visited int
	waits   []engine.MessageWait // at most mostWaits
}

// The encoding of a note: the number of ranks, then for each wait the rank, the peer, and the tag.
const (
	noteHeader = 4
	waitBytes  = 4 + 4 + 8
	mostWaits  = (transport.NoteBytes - noteHeader) / waitBytes
	sendFlag   = 1 << 31 // of the rank: it waits to send
)

func (n *note) put(to *transport.Note) {
	binary.LittleEndian.PutUint32(to[:], uint32(n.visited))
	for i, w := range n.waits {
		b := to[noteHeader+i*waitBytes:]
		rank := uint32(w.Rank)
		if w.Send {
			rank |= sendFlag
		}
		binary.LittleEndian.PutUint32(b, rank)
		binary.LittleEndian.PutUint32(b[4:], uint32(w.Peer))
		binary.LittleEndian.PutUint64(b[8:], uint64(w.Tag))
	}
}

// parse decodes a note that a rank of a group of the given size has sent. It returns nil if the note
// is not valid.
func parse(from *transport.Note, size int) *note {
	n := &note{visited: int(binary.LittleEndian.Uint32(from[:]))}
	if n.visited < 1 || n.visited > size {
		return nil
	}
	for i := range min(n.visited, mostWaits) {
		b := from[noteHeader+i*waitBytes:]
		rank := binary.LittleEndian.Uint32(b)
		w := engine.MessageWait{
			Rank: int(rank &^ sendFlag), Send: rank&sendFlag != 0,
			Peer: int(binary.LittleEndian.Uint32(b[4:])), Tag: int(binary.LittleEndian.Uint64(b[8:])),
		}
		if w.Rank >= size || w.Peer >= size {
			return nil
		}
		n.waits = append(n.waits, w)
	}
	return n
}

// with returns the note with one more wait.
func (n *note) with(w engine.MessageWait) *note {
	next := &note{visited: n.visited + 1, waits: n.waits}
	if len(n.waits) < mostWaits {
		next.waits = append(slices.Clip(n.waits), w)
	}
	return next
}

// hasVisited reports whether the note lists a wait of rank.
func (n *note) hasVisited(rank int) bool {
	return slices.ContainsFunc(n.waits, func(w engine.MessageWait) bool { return w.Rank == rank })
}

// fromLowest returns the waits of a cycle, from the lowest rank on if all are known.
func (n *note) fromLowest() []engine.MessageWait {
	if len(n.waits) < n.visited {
		return n.waits
	}
	i := 0
	for k, w := range n.waits {
		if w.Rank < n.waits[i].Rank {
			i = k
		}
	}
	return slices.Concat(n.waits[i:], n.waits[:i])
}

// Note keeps a note until a waiting message handles it. See transport.Handler.
func (s *Messages) Note(_ int, t *transport.Note) {
	n := parse(t, s.opt.Size)
	if n == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.notes) < notesPerRank*s.opt.Size {
		s.notes = append(s.notes, *n)
	}
}

// notesPerRank bounds the notes that wait to be handled. Each rank in a cycle repeats its notes, and so
// does each rank that waits for a rank in a cycle.
const notesPerRank = 4

// notice is called while a message waits. It sends and handles notes, and returns a failure if it
// finds a cycle.
func (p *pending) notice(waited time.Duration) error {
	s := p.s
	if minutes := int(waited / time.Minute); minutes > p.minutes && p.m.OnWait != nil {
		p.minutes = minutes
		p.m.OnWait(p.m, waited)
	}
	if s.opt.Timeout <= 0 {
		return nil
	}
	s.mu.Lock()
	if p.waited = waited; !p.listed {
		p.listed = true
		s.waiting = append(s.waiting, p)
	}
	var out []outgoing
	if p.stuck() && !s.transfers() { // before the notes of others: the lane may have room for few
		out = append(out, outgoing{p.t.Peer, (&note{}).with(p.wait())})
	}
	out, cycle := s.handleNotes(out)
	if len(out) > 0 && p.stuck() && p.t.Peer == s.opt.Rank && !s.transfers() {
		cycle = out[0].note
	}
	s.mu.Unlock()
	for _, o := range out {
		if o.to != s.opt.Rank {
			var t transport.Note
			o.note.put(&t)
			s.opt.Lane.Notify(o.to, &t)
		}
	}
	if cycle != nil {
		return s.failureOf(cycle, p)
	}
	return nil
}

// unlist removes a message that no longer waits.
func (s *Messages) unlist(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.listed, p.waited = false, 0
	if i := slices.Index(s.waiting, p); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	if len(s.waiting) == 0 {
		s.notes = s.notes[:0]
	}
}

// stuck reports whether a message has waited for the timeout for a named rank that has not made its
// call. Messages.mu is held.
func (p *pending) stuck() bool {
	return p.waited >= p.s.opt.Timeout && p.t.Peer != engine.AnyRank && !p.t.Matched.Load()
}

// transfers reports whether the other side of a waiting message is known. The message's goroutine may
// then still make the call that another rank waits for. Messages.mu is held.
func (s *Messages) transfers() bool {
	return slices.ContainsFunc(s.waiting, func(p *pending) bool { return p.t.Matched.Load() })
}

// wait describes what a message waits for.
func (p *pending) wait() engine.MessageWait {
	return engine.MessageWait{Rank: p.s.opt.Rank, Peer: p.t.Peer, Tag: p.t.Tag, Send: p.t.Send}
}

// An outgoing is a note and its receiver.
type outgoing struct {
	to   int
	note *note
}

// handleNotes adds the notes to send on to out. It also returns a note that has visited a cycle; nil:
// none has. Messages.mu is held.
func (s *Messages) handleNotes(out []outgoing) (_ []outgoing, cycle *note) {
	s.turn += notesTurn // so that other notes come first than the last time
	for i := range s.notes {
		n := &s.notes[(s.turn+i)%len(s.notes)]
		for _, p := range s.waiting {
			switch {
			case !p.stuck() || s.transfers():
			case n.waits[0] == p.wait():
				found := *n // s.notes is reused
				cycle = &found
			case !n.hasVisited(s.opt.Rank) && n.visited < s.opt.Size:
				out = append(out, outgoing{p.t.Peer, n.with(p.wait())})
			}
		}
	}
	s.notes = s.notes[:0]
	return out, cycle
}

// notesTurn is a prime, so that the notes take turns for most numbers of notes.
const notesTurn = 17

// failureOf returns the failure for a cycle, which p waits in or near to.
func (s *Messages) failureOf(cycle *note, p *pending) *engine.Failure {
	return &engine.Failure{Kind: engine.ErrTimeout, Op: p.m.Op(), Seq: p.m.Seq, Rank: s.opt.Rank, Facts: engine.Facts{
		Event: engine.WaitCycle, Limit: s.opt.Timeout, Waits: cycle.fromLowest(), Total: cycle.visited,
	}}
}
