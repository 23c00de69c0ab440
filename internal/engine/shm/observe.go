package shm

import (
	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

var _ engine.Observer = (*Engine)(nil)

// MarkWaits has Run note when it begins to wait.
func (e *Engine) MarkWaits(m *wait.FirstWait) { e.w.RecordFirstWait(m) }

// Beside has waits for other processes end without giving way, if there is room.
func (e *Engine) Beside() bool {
	var masks [][]byte // none: the processors of this process are all
	if s := e.g.shared; s != nil {
		masks = s.CPUMasks
	}
	room := !affinity.Oversubscribed(2*len(e.g.boards), masks)
	if room && e.g.shared != nil {
		e.g.lot.NeverYield()
	}
	return room
}

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
