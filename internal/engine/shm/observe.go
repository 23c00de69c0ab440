package shm

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

var _ engine.Observer = (*Engine)(nil)

// MarkWaits has Run note when it begins to wait.
func (e *Engine) MarkWaits(m *wait.Mark) { e.w.Note(m) }

// Behind returns the ranks that have begun fewer steps than this one.
func (e *Engine) Behind() (list []int) {
	steps := func(b board) uint64 {
		if h := b.last(); h != nil {
			return h.step.Load()
		}
		return 0
	}
	mine := steps(e.board)
	for r, b := range e.g.boards {
		if steps(b) < mine {
			list = append(list, r)
		}
	}
	return list
}
