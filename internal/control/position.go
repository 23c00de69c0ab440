package control

import (
	"time"

	"github.com/tutti-go/tutti/internal/overlay"
)

// HandlePositions registers heard for the positions that other members of a group send. from is a
// rank of the job. A reading goroutine of the Member calls heard, which must not block.
func (m *Member) HandlePositions(name string, heard func(from int, position []byte)) {
	m.mu.Lock()
	m.positionHandlers[name] = heard
	m.mu.Unlock()
}

// StopPositions removes the handler of HandlePositions.
func (m *Member) StopPositions(name string) {
	m.mu.Lock()
	delete(m.positionHandlers, name)
	m.mu.Unlock()
}

// SendPosition sends this rank's position to the other members of a group. A position equal to one
// that another member has sent is not forwarded, because the members know it already.
func (m *Member) SendPosition(name string, members []int, position []byte) {
	m.step(func(now time.Time) { m.node.SharePosition(now, name, members, position) })
}

// deliverPosition passes a received position to the handler of its group.
func (m *Member) deliverPosition(p *overlay.Message) {
	m.mu.Lock()
	heard := m.positionHandlers[p.Group]
	m.mu.Unlock()
	if heard != nil {
		heard(p.Rank, p.Where)
	}
}
