package engine

import "github.com/tutti-go/tutti/internal/wait"

// An Observer is an engine that lets be seen what it waits for. Engines that
// contain others pass the calls on, by MarkWaits and Behind.
type Observer interface {
	// MarkWaits has Run note in m when it begins to wait. It is called once,
	// before any Run.
	MarkWaits(m *wait.FirstWait)
	// Behind returns the ranks that have not arrived where this rank is, as far
	// as it can see, at any time and from any goroutine.
	Behind() []int
}

// MarkWaits has an engine note in m when it begins to wait, if it can.
func MarkWaits(e Engine, m *wait.FirstWait) {
	if o, ok := e.(Observer); ok {
		o.MarkWaits(m)
	}
}

// Behind returns who has not arrived where an engine's rank is; nil if it
// cannot know.
func Behind(e Engine) []int {
	if o, ok := e.(Observer); ok {
		return o.Behind()
	}
	return nil
}
