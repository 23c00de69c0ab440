package overlay

import "github.com/tutti-go/tutti/internal/engine"

// A Cause is a group's failure in the form in which it travels.
type Cause struct {
	Group   string `json:"group"`
	Members []int  `json:"members,omitempty"` // of the group, by their numbers in the job
	From    int    `json:"from"`              // who reported it
	Report  uint64 `json:"report"`            // and its number among that rank's reports

	Kind  string `json:"kind"`
	Op    string `json:"op,omitempty"`
	Seq   uint64 `json:"seq,omitempty"`
	Rank  int    `json:"rank"`
	Lost  []int  `json:"lost,omitempty"`
	Left  bool   `json:"left,omitempty"`
	Above []int  `json:"above,omitempty"`
	engine.Facts
}

// NewCause describes why a group has ended. What only the failing rank itself
// can match stays behind.
func NewCause(group string, f *engine.Failure) *Cause {
	return &Cause{
		Group: group, Kind: engine.KindName(f.Kind), Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Left: f.Left, Above: f.Above, Facts: f.Facts,
	}
}

// Failure is the cause as an engine takes it.
func (c *Cause) Failure() *engine.Failure {
	return &engine.Failure{
		Kind: engine.KindNamed(c.Kind), Op: c.Op, Seq: c.Seq, Rank: c.Rank, Lost: c.Lost, Left: c.Left, Above: c.Above, Facts: c.Facts, Told: true,
	}
}
