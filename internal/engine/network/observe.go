package network

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

var _ engine.Observer = (*Engine)(nil)

// MarkWaits has Run note when it begins to wait.
func (e *Engine) MarkWaits(m *wait.FirstWait) { e.w.RecordFirstWait(m) }

// Behind returns nil: a rank hears of another only what it needs.
func (e *Engine) Behind() []int { return nil }
