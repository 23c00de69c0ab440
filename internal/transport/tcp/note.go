package tcp

import (
	"slices"

	"github.com/tutti-go/tutti/internal/transport"
)

// maxNotes bounds the notes that are queued for one peer.
const maxNotes = 16

// Notify queues a note for a peer. It drops the note if there is no connection, if the same note is
// queued, or if too many are. A note to this rank itself is dropped.
func (m *Mesh) Notify(peer int, n *transport.Note) {
	s := &m.messages
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[peer]
	if p == nil || p.link == nil || p.err != nil || len(p.notes) >= maxNotes || slices.Contains(p.notes, *n) {
		return
	}
	p.notes = append(p.notes, *n)
	p.out.push(outHeader{kind: kindNote})
	s.list(p)
	s.writeOut(p)
	s.wakeDriver()
}
