package shm

import (
	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

var _ engine.Observer = (*Engine)(nil)

// MarkWaits makes Run record in m when it begins to wait.
func (e *Engine) MarkWaits(m *wait.FirstWait) { e.w.RecordFirstWait(m) }

// ReserveProxyCPUs prepares the group for NCCL's proxy threads, which poll on a core for each
// rank. If there are enough cores, waits for other processes do not yield. It
// reports whether there are.
func (e *Engine) ReserveProxyCPUs() bool {
	var masks [][]byte // nil: all processes have the same processors
	if s := e.g.shared; s != nil {
		masks = s.CPUMasks
	}
	enough := !affinity.Oversubscribed(2*len(e.g.boards), masks)
	if enough && e.g.shared != nil {
		e.g.parking.NeverYield()
	}
	return enough
}

// Behind returns the ranks that have published fewer steps than this rank. Any goroutine may call it while
// the boards are mapped, because it reads only atomic words of them.
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
