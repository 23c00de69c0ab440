package hier

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

var _ engine.Observer = (*Engine)(nil)

// MarkWaits forwards the call to the inner engines.
func (e *Engine) MarkWaits(m *wait.FirstWait) {
	for _, inner := range e.inner() {
		engine.MarkWaits(inner, m)
	}
}

// ReserveProxyCPUs forwards the call to the inner engines.
func (e *Engine) ReserveProxyCPUs() bool {
	enough := true
	for _, inner := range e.inner() {
		enough = engine.ReserveProxyCPUs(inner) && enough
	}
	return enough
}

// Behind returns nil: the inner engines count their own steps, not this engine's operations.
func (e *Engine) Behind() []int { return nil }
