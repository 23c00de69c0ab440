package overlay

import (
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Cause is a group's failure in the form in which it travels.
type Cause struct {
	Group   string `json:"group"`
	Members []int  `json:"members,omitempty"` // of the group, by their numbers in the job
	From    int    `json:"from"`              // who reported it
	Report  uint64 `json:"report"`            // and its number among that rank's reports

	Kind   string `json:"kind"`
	Op     string `json:"op,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
	Rank   int    `json:"rank"`
	Lost   []int  `json:"lost,omitempty"`
	Left   bool   `json:"left,omitempty"`
	Above  []int  `json:"above,omitempty"`
	Reason string `json:"reason"`
}

// kinds are the failures that can travel, by name.
var causeKinds = map[string]error{
	"lost": engine.ErrRankLost, "timeout": engine.ErrTimeout, "mismatch": engine.ErrMismatch,
	"aborted": engine.ErrAborted, "closed": engine.ErrClosed, "unsupported": engine.ErrUnsupported,
	"corrupt": engine.ErrCorrupt, "device": engine.ErrNoDevicePath,
}

// NewCause describes why a group has ended. What only the failing rank itself
// can match stays behind.
func NewCause(group string, f *engine.Failure) *Cause {
	c := &Cause{Group: group, Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Left: f.Left, Above: f.Above, Reason: f.Reason}
	for name, kind := range causeKinds {
		if errors.Is(f.Kind, kind) {
			c.Kind = name
		}
	}
	return c
}

// Failure is the cause as an engine takes it.
func (c *Cause) Failure() *engine.Failure {
	kind, ok := causeKinds[c.Kind]
	if !ok {
		kind = engine.ErrAborted
	}
	return &engine.Failure{
		Kind: kind, Op: c.Op, Seq: c.Seq, Rank: c.Rank, Lost: c.Lost, Left: c.Left, Above: c.Above, Reason: c.Reason, Told: true,
	}
}
