package overlay

import "github.com/tutti-go/tutti/internal/engine"

// A Cause is a group's failure as it is sent to other ranks.
type Cause struct {
	Group   string `json:"group"`
	Members []int  `json:"members,omitempty"` // of the group, by their numbers in the job
	From    int    `json:"from"`              // the rank that reported it
	Report  uint64 `json:"report"`            // number among the reports of rank From

	Kind  string `json:"kind"`
	Op    string `json:"op,omitempty"`
	Seq   uint64 `json:"seq,omitempty"`
	Rank  int    `json:"rank"`
	Lost  []int  `json:"lost,omitempty"`
	Left  bool   `json:"left,omitempty"`
	Above []int  `json:"above,omitempty"`
	engine.Facts
}

// NewCause describes a group's failure for other ranks. It omits errors that only the failing rank
// itself can match.
func NewCause(group string, f *engine.Failure) *Cause {
	return &Cause{
		Group: group, Kind: engine.KindName(f.Kind), Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Left: f.Left, Above: f.Above, Facts: f.Facts,
	}
}

// Failure returns the cause in the form of package engine.
func (c *Cause) Failure() *engine.Failure {
	return &engine.Failure{
		Kind: engine.KindNamed(c.Kind), Op: c.Op, Seq: c.Seq, Rank: c.Rank, Lost: c.Lost, Left: c.Left, Above: c.Above, Facts: c.Facts, Told: true,
	}
}
