package overlay

import "github.com/tutti-go/tutti/internal/engine"

// An Action is an instruction of a Node to its owner.
type Action struct {
	Do      ActionKind
	Rank    int         // of Send, Dial, Unlink, Depart and NotifyPosition
	Message *Message    // of Send and NotifyPosition
	Ranks   []int       // of Lose
	Reason  engine.Loss // of Lose
	Cause   *Cause      // of Fail
}

// An ActionKind says what to do.
type ActionKind uint8

// The kinds of Action.
const (
	Send           ActionKind = iota // send Message to Rank, on the newest link
	Dial                             // connect to Rank; answer by LinkUp or DialFailed
	Unlink                           // send Drop on a link to Rank that this rank dialed, and nothing after it on that link
	Lose                             // notify this rank's groups that Ranks are lost
	Depart                           // record that Rank has left
	Fail                             // notify this rank's group of its first cause
	NotifyPosition                   // notify this rank's group of another rank's Position
)

func (n *Node) act(a Action)              { n.actions = append(n.actions, a) }
func (n *Node) send(rank int, m *Message) { n.act(Action{Do: Send, Rank: rank, Message: m}) }
