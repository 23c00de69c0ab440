package engine

import "github.com/tutti-go/tutti/internal/wait"

// An Observer is an engine that reports for which ranks it waits. An engine that
// contains other engines forwards the calls with the functions MarkWaits and Behind.
type Observer interface {
	// MarkWaits makes Run record in m when it begins to wait. It is called once,
	// before any Run.
	MarkWaits(m *wait.FirstWait)
	// Behind returns the ranks that have not arrived at this rank's operation, as far
	// as this rank knows. It may be called concurrently.
	Behind() []int
}

// MarkWaits makes e record in m when it begins to wait, if e is an Observer.
func MarkWaits(e Engine, m *wait.FirstWait) {
	if o, ok := e.(Observer); ok {
		o.MarkWaits(m)
	}
}

// Behind returns the ranks that have not arrived at the operation of e's rank; nil if
// e is no Observer.
func Behind(e Engine) []int {
	if o, ok := e.(Observer); ok {
		return o.Behind()
	}
	return nil
}
