package watch

import "slices"

// mostCauses is how many causes rank 0 remembers. More are needed only if a rank
// does not answer while so many groups fail.
const mostCauses = 4096

// A judged is the first cause of a group's end, which rank 0 remembers as long as a
// member may still report another one: until each has heard of it, has reported, or
// has left. hub.mu guards it.
type judged struct {
	cause  *Cause
	unsure map[int]bool // the ranks that may still report another cause
	number uint64       // among all causes
}

// remember notes a group's first cause. h.mu is held.
func (h *hub) remember(c *Cause) {
	j := &judged{cause: c, unsure: make(map[int]bool), number: h.nCauses}
	h.nCauses++
	for r, conn := range h.conns {
		if conn != nil && r != c.From && (c.Members == nil || slices.Contains(c.Members, r)) {
			j.unsure[r] = true
		}
	}
	if len(j.unsure) == 0 {
		return // rank 0 itself asks its own group
	}
	if len(h.causes) >= mostCauses {
		oldest := ""
		for name, o := range h.causes {
			if oldest == "" || o.number < h.causes[oldest].number {
				oldest = name
			}
		}
		delete(h.causes, oldest)
	}
	h.causes[c.Group] = j
}

// sure notes that a rank reports no other cause of a group's end. h.mu is held.
func (h *hub) sure(group string, rank int) {
	if j := h.causes[group]; j != nil {
		if delete(j.unsure, rank); len(j.unsure) == 0 {
			delete(h.causes, group)
		}
	}
}

// surely does that for all groups, because the rank is gone. h.mu is held.
func (h *hub) surely(rank int) {
	for group := range h.causes {
		h.sure(group, rank)
	}
}
