package network

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

var _ engine.Observer = (*Engine)(nil)

// MarkWaits makes Run record in m when it begins to wait.
func (e *Engine) MarkWaits(m *wait.FirstWait) { e.w.RecordFirstWait(m) }

// Behind returns nil: a rank does not know how far ranks are with which it
// exchanges nothing.
func (e *Engine) Behind() []int { return nil }
