package watch

import "slices"

// maxPassed is how many positions rank 0 remembers to have passed on.
const maxPassed = 64

// Follow has heard called with what other members of a group Tell, and who
// they are, by their numbers in the job. It is called by the goroutine that
// takes all that comes, and must not wait for anything.
func (m *Member) Follow(name string, heard func(from int, position []byte)) {
	m.mu.Lock()
	m.follows[name] = heard
	m.mu.Unlock()
}

// Unfollow ends that.
func (m *Member) Unfollow(name string) {
	m.mu.Lock()
	delete(m.follows, name)
	m.mu.Unlock()
}

// Tell tells the other members of a group where this rank is. A position that
// another has told before need not reach them again: the same means the same.
func (m *Member) Tell(name string, members []int, position []byte) error {
	f := &frame{Kind: at, Rank: m.cfg.Rank, Key: name, Members: members, Blob: position}
	if m.hub != nil {
		m.hub.pass(f)
		return nil
	}
	return m.up.send(f)
}

// hear takes a position.
func (m *Member) hear(f *frame) {
	m.mu.Lock()
	heard := m.follows[f.Key]
	m.mu.Unlock()
	if heard != nil {
		heard(f.Rank, f.Blob)
	}
}

// pass passes a position on, unless somebody has told the same a while ago:
// when many ranks wait for one, they are all in the same place.
func (h *hub) pass(f *frame) {
	text := f.Key + "\x00" + string(f.Blob)
	h.mu.Lock()
	known := slices.Contains(h.passed[:], text)
	if !known {
		h.passed[h.nPassed%maxPassed] = text
		h.nPassed++
	}
	h.mu.Unlock()
	if known {
		return
	}
	h.spread(f, f.Rank)
	if f.Rank != 0 && slices.Contains(f.Members, 0) {
		h.m.hear(f)
	}
}
