package bench

// saved is a run as a page holds it.
type saved struct {
	Start  *Start   `json:"start"`
	Points []Point  `json:"points"`
	Links  []Link   `json:"links,omitempty"`
	Done   *Finish  `json:"done"`
	Old    []Result `json:"old,omitempty"`
}

// page writes the report.
func (s *Screen) page() error { return nil }
