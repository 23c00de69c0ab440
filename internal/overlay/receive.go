package overlay

import (
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// flood sends a message on all links except those with rank from, and asks for acknowledgements.
func (n *Node) flood(now time.Time, m *Message, from int) {
	for r := range n.peers {
		if n.other(r) && r != from && n.linked(r) {
			n.send(r, m)
			n.ask(now, r)
		}
	}
}

// Receive handles a message from a rank. It ignores invalid messages.
func (n *Node) Receive(now time.Time, from int, m *Message) {
	n.markAlive(from)
	switch m.Kind {
	case Ask:
		n.send(from, &Message{Kind: Here, Number: m.Number})
	case Here:
		n.answered(now, from, m.Number)
	case Bye:
		n.receiveBye(now, from, m.Number)
	case Noted:
		n.receiveNoted(from, m.Number)
	case State:
		n.peers[from].gotState = true
		for _, fact := range m.Facts {
			if fact != nil {
				n.learn(now, from, fact)
			}
		}
	default:
		n.learn(now, from, m)
	}
	n.arm(now)
}

// learn handles a message that is spread to all ranks.
func (n *Node) learn(now time.Time, from int, m *Message) {
	switch m.Kind {
	case Lost:
		var list []int
		for _, r := range m.Ranks {
			if n.valid(r) && n.present(r) && !slices.Contains(list, r) {
				list = append(list, r)
			}
		}
		if len(list) > 0 {
			n.spreadLost(now, from, list, m.Reason)
		}
	case Left:
		n.learnLeft(m.Ranks)
	case Failed:
		if m.Cause != nil {
			n.learnCause(now, from, m.Cause)
		}
	case Report:
		if m.Cause != nil {
			n.report(now, from, m.Cause)
		}
	case Position:
		n.position(now, from, m)
	}
}

// lose handles this rank's own finding that a rank is lost. If the rank's host does not answer, all
// ranks of that host are lost.
func (n *Node) lose(now time.Time, rank int, reason engine.Loss) {
	var list []int
	for r := range n.peers {
		near := reason == Silent && n.hosts != nil && n.hosts[r] == n.hosts[rank] && n.hosts[r] != n.hosts[n.self]
		if n.present(r) && (r == rank || near) {
			list = append(list, r)
		}
	}
	if len(list) > 0 {
		n.spreadLost(now, n.self, list, reason)
	}
}

// spreadLost forwards the fact that ranks are lost and then has this rank's groups notified. The
// fact is not ignored if this rank is among ranks: the other ranks continue without it, so its
// groups must end.
func (n *Node) spreadLost(now time.Time, from int, ranks []int, reason engine.Loss) {
	for _, r := range ranks {
		n.peers[r].status = lost
		n.losses++
	}
	m := &Message{Kind: Lost, Ranks: ranks, Reason: reason}
	n.facts = append(n.facts, m)
	n.flood(now, m, from)
	n.flushLeft(now)
	n.notify(now, Action{Do: Lose, Ranks: ranks, Reason: reason})
}

// learnLeft handles the fact that ranks have left. The links are notified by the next tick, with
// one message for all ranks, because at the end of a job every rank leaves.
func (n *Node) learnLeft(ranks []int) {
	for _, r := range ranks {
		if n.valid(r) && n.present(r) && n.other(r) {
			n.peers[r].status = left
			n.unforwarded = append(n.unforwarded, r)
			n.facts = append(n.facts, &Message{Kind: Left, Ranks: []int{r}})
			n.act(Action{Do: Depart, Rank: r})
		}
	}
}

// flushLeft notifies the present ranks of departures. A leaving rank that has acknowledged a
// goodbye since its own last goodbye says goodbye again, because the departures must be
// acknowledged before it exits. Departures that it learned from another rank need no
// acknowledgement: that rank forwards them as well.
func (n *Node) flushLeft(now time.Time) {
	again := n.leaving && n.coverBye > n.byes
	if len(n.unforwarded) == 0 && !again {
		return
	}
	m := &Message{Kind: Left, Ranks: n.unforwarded}
	n.unforwarded = nil
	for _, r := range m.Ranks {
		n.peers[r].uncovered = true
	}
	for r := range n.peers {
		if again {
			n.peers[r].uncovered = false
		}
		if n.other(r) && n.linked(r) && n.present(r) {
			if len(m.Ranks) > 0 {
				n.send(r, m)
			}
			if again {
				n.bye(now, r)
			}
		}
	}
}

// learnCause handles the first cause of a group's failure. This rank keeps only the first decision
// that it learns.
func (n *Node) learnCause(now time.Time, from int, c *Cause) {
	if n.causes[c.Group] != nil {
		return
	}
	delete(n.pending, c.Group)
	m := &Message{Kind: Failed, Cause: c}
	n.causes[c.Group] = c
	n.facts = append(n.facts, m)
	if len(n.causes) > maxCauses {
		i := slices.IndexFunc(n.facts, func(f *Message) bool { return f.Kind == Failed })
		delete(n.causes, n.facts[i].Cause.Group)
		n.facts = slices.Delete(n.facts, i, i+1)
	}
	n.flood(now, m, from)
	n.flushLeft(now)
	if c.Members == nil || slices.Contains(c.Members, n.self) {
		n.notify(now, Action{Do: Fail, Cause: c})
	}
}
