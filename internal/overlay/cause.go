package overlay

import (
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Cause is a group's failure as it is sent to other ranks.
type Cause struct {
	Group   string `json:"group"`
	Members []int  `json:"members,omitempty"` // of the group, by their numbers in the job
	From    int    `json:"from"`              // the rank that reported it
	Report  uint64 `json:"report"`            // number among the reports of rank From

	Kind   string `json:"kind"`
	Op     string `json:"op,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
	Rank   int    `json:"rank"`
	Lost   []int  `json:"lost,omitempty"`
	Left   bool   `json:"left,omitempty"`
	Above  []int  `json:"above,omitempty"`
	Reason string `json:"reason"`
}

// kinds maps the names of failures that can be sent to their errors.
var kinds = map[string]error{
	"lost": engine.ErrRankLost, "timeout": engine.ErrTimeout, "mismatch": engine.ErrMismatch,
	"aborted": engine.ErrAborted, "closed": engine.ErrClosed, "unsupported": engine.ErrUnsupported,
	"corrupt": engine.ErrCorrupt, "device": engine.ErrNoDevicePath,
}

// NewCause describes a group's failure for other ranks. It omits errors that only the failing rank
// itself can match.
func NewCause(group string, f *engine.Failure) *Cause {
	c := &Cause{Group: group, Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Left: f.Left, Above: f.Above, Reason: f.Reason}
	for name, kind := range kinds {
		if errors.Is(f.Kind, kind) {
			c.Kind = name
		}
	}
	return c
}

// Failure returns the cause in the form of package engine.
func (c *Cause) Failure() *engine.Failure {
	kind, ok := kinds[c.Kind]
	if !ok {
		kind = engine.ErrAborted
	}
	return &engine.Failure{
		Kind: kind, Op: c.Op, Seq: c.Seq, Rank: c.Rank, Lost: c.Lost, Left: c.Left, Above: c.Above, Reason: c.Reason, Told: true,
	}
}
