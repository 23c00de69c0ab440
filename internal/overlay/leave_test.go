package overlay

import (
	"slices"
	"testing"
	"time"
)

// leaver returns a Node of rank 1 of four that leaves. Rank 0, its link of Join, has left, and the
// rank has made links with other ranks.
func leaver(t *testing.T, now time.Time, links ...int) *Node {
	t.Helper()
	n := New(1, 4, testHostTimeout)
	n.Begin()
	n.Reach(now)
	n.Receive(now, 0, &Message{Kind: Bye, Number: 1})
	n.Leave(now)
	list := n.Take()
	for _, r := range links {
		if !dials(list, r) {
			t.Fatalf("rank %d is not dialed", r)
		}
		n.LinkUp(now, r, true)
		n.Receive(now, r, &Message{Kind: State})
	}
	n.Take()
	return n
}

func dials(list []Action, rank int) bool {
	return slices.ContainsFunc(list, func(a Action) bool { return a.Do == Dial && a.Rank == rank })
}

// sent returns the messages of a kind that a Node has sent to a rank.
func sent(list []Action, rank int, kind Kind) (messages []*Message) {
	for _, a := range list {
		if a.Do == Send && a.Rank == rank && a.Message.Kind == kind {
			messages = append(messages, a.Message)
		}
	}
	return messages
}

// TestLeaveTogether lets two ranks leave that have a link only with each other, while other ranks
// stay. The acknowledgement of either does not let the other exit: each must connect to a rank that
// stays.
func TestLeaveTogether(t *testing.T) {
	now := time.Unix(1000, 0)
	n := leaver(t, now, 2)
	n.Receive(now, 2, &Message{Kind: Bye, Number: 7})
	noted := sent(n.Take(), 2, Noted)
	if len(noted) != 1 || noted[0].Number != 0 {
		t.Fatalf("rank 2 leaves, and is acknowledged by %+v", noted)
	}
	n.Receive(now, 2, &Message{Kind: Noted}) // rank 2 is in the same state
	if n.MayExit() {
		t.Fatal("rank 1 exits, and no rank that stays knows")
	}
	n.Tick(now.Add(leftPace))
	n.LinkUp(now, 3, true)
	byes := sent(n.Take(), 3, Bye)
	if len(byes) != 1 || n.MayExit() {
		t.Fatalf("goodbyes to rank 3: %v", byes)
	}
	n.Receive(now, 3, &Message{Kind: Noted, Number: byes[0].Number})
	if !n.MayExit() {
		t.Error("rank 1 does not exit though rank 3 knows")
	}
}

// TestLeaveLate lets a leaving rank acknowledge another rank's goodbye. It must not exit before
// another rank has acknowledged that departure, although its own goodbye is acknowledged. The ranks
// with which it has links no longer answer, so it makes another link.
func TestLeaveLate(t *testing.T) {
	now := time.Unix(1000, 0)
	n := New(1, 5, testHostTimeout)
	n.Begin()
	n.Reach(now)
	for _, r := range []int{2, 3} {
		n.LinkUp(now, r, true)
	}
	n.Leave(now)
	byes := n.Take()
	n.Receive(now, 2, &Message{Kind: Bye, Number: 7})
	if noted := sent(n.Take(), 2, Noted); len(noted) != 1 || noted[0].Number != 7 {
		t.Fatalf("rank 2 leaves, and is acknowledged by %+v", noted)
	}
	for _, r := range []int{0, 3} {
		n.Receive(now, r, &Message{Kind: Noted, Number: sent(byes, r, Bye)[0].Number})
		n.peers[r].suspected = true
	}
	if n.MayExit() {
		t.Fatal("rank 1 exits, and rank 4 does not know that rank 2 has left")
	}
	n.Tick(now.Add(leftPace))
	if !dials(n.Take(), 4) {
		t.Fatal("rank 4 is not dialed")
	}
	n.LinkUp(now, 4, true)
	list := n.Take()
	if state := sent(list, 4, State); len(state) != 1 || !slices.ContainsFunc(state[0].Facts, func(f *Message) bool { return f.Kind == Left && f.Ranks[0] == 2 }) {
		t.Fatalf("rank 4 is not notified that rank 2 has left: %v", list)
	}
	n.Receive(now, 4, &Message{Kind: Noted, Number: sent(list, 4, Bye)[0].Number})
	if !n.MayExit() {
		t.Error("rank 1 does not exit though rank 4 knows")
	}
}

// TestLeaveRepeated passes a rank's goodbye a second time to a leaving rank. Its own goodbyes cover that
// departure already, so no further acknowledgement is needed.
func TestLeaveRepeated(t *testing.T) {
	now := time.Unix(1000, 0)
	n := New(1, 5, testHostTimeout)
	n.Begin()
	n.Reach(now)
	for _, r := range []int{2, 3} {
		n.LinkUp(now, r, true)
	}
	n.Leave(now)
	n.Receive(now, 2, &Message{Kind: Bye, Number: 7})
	n.Tick(now.Add(leftPace))
	list := n.Take()
	for _, r := range []int{0, 3} {
		byes := sent(list, r, Bye)
		if len(byes) != 2 {
			t.Fatalf("rank %d receives %d goodbyes, not one more after the departure of rank 2", r, len(byes))
		}
		for _, m := range byes {
			n.Receive(now, r, &Message{Kind: Noted, Number: m.Number})
		}
	}
	if !n.MayExit() {
		t.Fatal("rank 1 does not exit though ranks 0 and 3 know")
	}
	n.Receive(now, 2, &Message{Kind: Bye, Number: 8})
	if noted := sent(n.Take(), 2, Noted); len(noted) != 1 || noted[0].Number != 8 {
		t.Fatalf("the second goodbye of rank 2 is acknowledged by %+v", noted)
	}
	if !n.MayExit() {
		t.Error("rank 1 does not exit after the second goodbye of rank 2")
	}
}

// TestMissing dials a rank at whose address nothing listens and with which there was no link. The
// rank may have left. It is lost after missingFor if all others answer. If a rank does not answer,
// which may know of the departure, it is lost after the host timeout.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		suspected bool
		want      time.Duration
	}{{false, missingFor}, {true, testHostTimeout}} {
		begun := time.Unix(1000, 0)
		n := New(1, 4, testHostTimeout)
		n.Begin()
		n.Reach(begun)
		n.DialFailed(begun, 3, Refused)
		lost := time.Duration(0)
		for at := Pace; lost == 0 && at < 2*testHostTimeout; at += Pace {
			now := begun.Add(at)
			n.Tick(now)
			for list := n.Take(); len(list) > 0; list = n.Take() {
				for _, a := range list {
					switch {
					case a.Do == Lose:
						lost = at
					case a.Do == Dial && a.Rank == 3:
						n.DialFailed(now, 3, Refused)
					case a.Do == Dial:
						n.LinkUp(now, a.Rank, true)
					case a.Do == Send && a.Message.Kind == Ask && (a.Rank != 2 || !c.suspected):
						n.Receive(now, a.Rank, &Message{Kind: Here, Number: a.Message.Number})
					}
				}
			}
		}
		if lost < c.want || lost > c.want+2*Pace {
			t.Errorf("another rank does not answer: %v: lost after %v, want %v", c.suspected, lost, c.want)
		}
	}
}

// TestLeaverDecides checks that a leaving rank decides nothing.
func TestLeaverDecides(t *testing.T) {
	now := time.Unix(1000, 0)
	n := New(0, 3, testHostTimeout)
	n.Begin()
	n.Reach(now)
	n.Leave(now)
	n.Receive(now, 2, &Message{Kind: Report, Cause: &Cause{Group: "g", From: 2}})
	n.Tick(now.Add(time.Second))
	if list := n.Take(); sent(list, 1, Failed) != nil || len(sent(list, 1, Report)) != 1 {
		t.Errorf("rank 0 leaves, and decides: %v", list)
	}
}
