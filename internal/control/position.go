package control

import (
	"time"

	"github.com/tutti-go/tutti/internal/overlay"
)

// Follow has heard called with what other members of a group Tell, and who
// they are, by their numbers in the job. It is called by the goroutine that
// takes all that comes, and must not wait for anything.
func (m *Member) HandlePositions(name string, heard func(from int, position []byte)) {
	m.mu.Lock()
	m.positionHandlers[name] = heard
	m.mu.Unlock()
}

// Unfollow ends that.
func (m *Member) StopPositions(name string) {
	m.mu.Lock()
	delete(m.positionHandlers, name)
	m.mu.Unlock()
}

// Tell tells the other members of a group where this rank is. A position that
// another has told before need not reach them again: the same means the same.
func (m *Member) SendPosition(name string, members []int, position []byte) {
	m.step(func(now time.Time) { m.node.SharePosition(now, name, members, position) })
}

// hear takes a position.
func (m *Member) deliverPosition(p *overlay.Message) {
	m.mu.Lock()
	heard := m.positionHandlers[p.Group]
	m.mu.Unlock()
	if heard != nil {
		heard(p.Rank, p.Where)
	}
}
