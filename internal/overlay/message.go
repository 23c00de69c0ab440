package overlay

import "github.com/tutti-go/tutti/internal/engine"

// A Message is sent from one Node to another. Each field is used by the kinds named in its comment.
type Message struct {
	Kind Kind `json:"k"`
	// Rank is the rank that Position is about.
	Rank int `json:"rank,omitempty"`
	// Reason is how the ranks of Lost are lost.
	Reason engine.Loss `json:"reason,omitempty"`
	// Ranks are the ranks of Lost or Left.
	Ranks []int `json:"ranks,omitempty"`
	// Cause is the cause of Failed or Report.
	Cause *Cause `json:"cause,omitempty"`
	// Facts is the content of State: Lost, Left and Failed in the order in which the sender learned
	// them, then Reports, then Positions.
	Facts []*Message `json:"facts,omitempty"`
	// Number counts a rank's Positions, its goodbyes, or the Asks between two ranks. A Here has the
	// number of its Ask, and a Noted that of its Bye. A Noted without a number comes from a rank
	// that cannot forward the departure.
	Number uint64 `json:"n,omitempty"`
	// Group, Members and Where are the content of a Position.
	Group   string `json:"group,omitempty"`
	Members []int  `json:"members,omitempty"` // ranks of the job
	Where   []byte `json:"where,omitempty"`
}

// A Kind is the type of a Message.
type Kind uint8

// The kinds of Message.
const (
	Lost     Kind = iota + 1 // fact: ranks are lost
	Left                     // fact: ranks have left in good order
	Failed                   // fact: the first cause of a group's failure
	State                    // the first message on a link: all facts
	Report                   // a cause for the coordinator to decide on
	Position                 // which operation a rank is in
	Ask                      // requests an acknowledgement of all messages before it
	Here                     // acknowledges an Ask; without a number, a Bye whose Noted must wait
	Bye                      // the sender leaves the job
	Noted                    // acknowledges a Bye
	Drop                     // the sender has dropped this link
)
