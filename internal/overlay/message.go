package overlay

import "github.com/tutti-go/tutti/internal/engine"

// A Message is what two Nodes send each other. Its fields are used by the kinds that name them.
type Message struct {
	Kind Kind `json:"k"`
	// Rank is the subject of Lost and Position.
	Rank int `json:"rank,omitempty"`
	// Reason is how a rank was Lost.
	Reason engine.Loss `json:"reason,omitempty"`
	// Ranks have Left.
	Ranks []int `json:"ranks,omitempty"`
	// Cause is that of Failed and Report.
	Cause *Cause `json:"cause,omitempty"`
	// Facts are those of State: Lost, Left and Failed in the order in which the sender learned
	// them, then Reports, then Positions.
	Facts []*Message `json:"facts,omitempty"`
	// Number counts a rank's Positions, the questions between two ranks, or a rank's goodbyes: an
	// Ask and its Here have the same, and so have a Bye and its Noted. A Noted without it is that of
	// a rank that cannot pass the fact on.
	Number uint64 `json:"n,omitempty"`
	// Group, Members and Where are a Position.
	Group   string `json:"group,omitempty"`
	Members []int  `json:"members,omitempty"` // by their ranks in the job
	Where   []byte `json:"where,omitempty"`
}

// A Kind is what a Message says.
type Kind uint8

// The kinds of Message.
const (
	Lost     Kind = iota + 1 // fact: a rank is lost
	Left                     // fact: ranks have left in good order
	Failed                   // fact: the first cause of a group's failure
	State                    // the first message on a link: all facts
	Report                   // a cause on which the coordinator is to decide
	Position                 // which operation a rank is in
	Ask                      // all messages before this one are to be acknowledged
	Here                     // acknowledges an Ask; without a number, a Bye whose Noted must wait
	Bye                      // the sender leaves the job
	Noted                    // acknowledges a Bye
	Drop                     // the sender uses this link no more
)
