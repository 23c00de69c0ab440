package shm

import (
	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

var _ engine.Observer = (*Engine)(nil)

// MarkWaits has Run note when it begins to wait.
func (e *Engine) MarkWaits(m *wait.FirstWait) { e.w.RecordFirstWait(m) }

// ReserveProxyCPUs makes waits for other processes stop yielding if there are enough CPUs.
func (e *Engine) ReserveProxyCPUs() bool {
	var masks [][]byte // none: the processors of this process are all
	if s := e.g.shared; s != nil {
		masks = s.CPUMasks
	}
	enough := !affinity.Oversubscribed(2*len(e.g.boards), masks)
	if enough && e.g.shared != nil {
		e.g.lot.NeverYield()
	}
	return enough
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
