package overlay

import (
	"maps"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// A report is a cause without a decision of the coordinator.
type report struct {
	cause *Cause
	since time.Time // when this rank learned of it
}

// Report submits a cause that this rank has found to the coordinator. The Node answers by Fail with
// the first cause of the group's failure.
func (n *Node) Report(now time.Time, c *Cause) {
	n.report(now, n.self, c)
	n.arm(now)
}

// report handles a cause that this rank or rank from has found. If the first cause is known, it is
// the answer. Otherwise the report is forwarded once per group.
func (n *Node) report(now time.Time, from int, c *Cause) {
	if first := n.causes[c.Group]; first != nil {
		if from == n.self {
			n.notify(now, Action{Do: Fail, Cause: first})
		} else if n.linked(from) {
			n.send(from, &Message{Kind: Failed, Cause: first})
		}
		return
	}
	if n.pending[c.Group] == nil {
		n.pending[c.Group] = &report{c, now}
		n.flood(now, &Message{Kind: Report, Cause: c}, from)
		n.decide(now)
	}
}

// First returns the first cause of a group's failure, or nil if this rank knows no decision.
func (n *Node) First(group string) *Cause { return n.causes[group] }

// Decide decides on the reported cause of a group, if there is one, without waiting for the ranks
// before this one. The owner calls it if it knows that they do not answer.
func (n *Node) Decide(now time.Time, group string) {
	if p := n.pending[group]; p != nil {
		n.learnCause(now, n.self, p.cause)
	}
	n.arm(now)
}

// undecided returns the groups of the pending reports in sorted order.
func (n *Node) undecided() []string { return slices.Sorted(maps.Keys(n.pending)) }

// decide decides on reported causes if this rank is the coordinator, or if the ranks before it have
// not decided in time. A leaving rank decides nothing: another rank may know that it leaves and
// decide in its place. A rank that is apart waits: the other ranks may know an earlier cause.
//
// A report that a rank is lost waits for the fact that it is lost, or for the end of the links with it.
// The rank that reports it may have found the end of a connection outside of the control channel, whose
// order with the facts is not known. The lost rank may have exited because of another loss. It had
// forwarded that loss, which therefore arrives first. If only the other connection has ended, the
// decision is made after confirmAfter.
func (n *Node) decide(now time.Time) {
	if len(n.pending) == 0 || n.leaving || n.apart(now) {
		return
	}
	before := 0
	for r := range n.self {
		if n.answers(r) {
			before++
		}
	}
	for _, group := range n.undecided() {
		p, wait := n.pending[group], time.Duration(0)
		if before > 0 {
			wait = decideAfter + time.Duration(before)*decidePerRank
		}
		if n.unconfirmed(p.cause) {
			wait += confirmAfter
		}
		if now.Sub(p.since) >= wait {
			n.learnCause(now, n.self, p.cause)
		}
	}
}

// unconfirmed reports whether a cause says that a rank is lost that is present as far as this rank
// knows, and whose messages this rank may not have received, or which is being dialed once more: the
// end of the dial says whether the rank has exited.
func (n *Node) unconfirmed(c *Cause) bool {
	if c.Kind != engine.KindName(engine.ErrRankLost) || c.Left {
		return false
	}
	return slices.ContainsFunc(c.Lost, func(i int) bool {
		if i < 0 || i >= len(c.Members) || !n.valid(c.Members[i]) {
			return false
		}
		p := &n.peers[c.Members[i]]
		return p.status == present && (p.links > 0 || p.broken == "" || p.dialing)
	})
}
