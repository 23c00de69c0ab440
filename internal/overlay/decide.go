package overlay

import (
	"maps"
	"slices"
	"time"
)

// A report is a cause on which the coordinator is to decide.
type report struct {
	cause *Cause
	since time.Time // when this rank learned of it
}

// Report has a cause that this rank has found decided on. The Node answers by Fail, with the first
// cause of the group's failure.
func (n *Node) Report(now time.Time, c *Cause) {
	n.report(now, n.self, c)
	n.arm(now)
}

// report takes a cause that this rank or another has found.
func (n *Node) report(now time.Time, from int, c *Cause) {
	if first := n.causes[c.Group]; first != nil {
		if from == n.self {
			n.act(Action{Do: Fail, Cause: first})
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

// First is the first cause of a group's failure, if this rank knows that it is decided.
func (n *Node) First(group string) *Cause { return n.causes[group] }

// Decide has this rank decide on a group's reported cause, if there is one, without waiting for the
// ranks before it. It is for an owner that knows that these do not answer.
func (n *Node) Decide(now time.Time, group string) {
	if p := n.pending[group]; p != nil {
		n.learnCause(now, n.self, p.cause)
	}
	n.arm(now)
}

// undecided are the groups of the pending reports, in order.
func (n *Node) undecided() []string { return slices.Sorted(maps.Keys(n.pending)) }

// decide decides on reported causes, if this rank is the coordinator, or if the ranks before it have
// not decided in time. A rank that leaves decides nothing: another rank may know that it leaves, and
// decide in its place.
func (n *Node) decide(now time.Time) {
	if len(n.pending) == 0 || n.leaving {
		return
	}
	before := 0
	for r := range n.self {
		if n.answers(r) {
			before++
		}
	}
	for _, group := range n.undecided() {
		p := n.pending[group]
		if before == 0 || now.Sub(p.since) >= decideAfter+time.Duration(before)*decidePerRank {
			n.learnCause(now, n.self, p.cause)
		}
	}
}
