package overlay

import (
	"slices"
	"time"
)

// SharePosition spreads this rank's position in a group to its members. A position equal to one
// that another rank has sent is not sent again.
func (n *Node) SharePosition(now time.Time, group string, members []int, where []byte) {
	n.numPositions++
	n.position(now, n.self, &Message{
		Kind: Position, Rank: n.self, Number: n.numPositions, Group: group, Members: members, Where: slices.Clone(where),
	})
	n.arm(now)
}

// position handles a position: it forwards the position once and notifies this rank's group.
func (n *Node) position(now time.Time, from int, m *Message) {
	if !n.valid(m.Rank) || m.Number <= n.seen[m.Rank] {
		return
	}
	n.seen[m.Rank] = m.Number
	same := func(o *Message) bool { return o.Group == m.Group && string(o.Where) == string(m.Where) }
	if slices.ContainsFunc(n.positions, same) {
		return // ranks that wait for the same rank have equal positions
	}
	if len(n.positions) == maxPositions {
		n.positions = slices.Delete(n.positions, 0, 1)
	}
	n.positions = append(n.positions, m)
	n.flood(now, m, from)
	if m.Rank != n.self && slices.Contains(m.Members, n.self) {
		n.act(Action{Do: NotifyPosition, Rank: m.Rank, Message: m})
	}
}
