package shm

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/wait"
)

// pieceBits is the number of low bits of a progress, staged or taken word that
// count pieces or windows. The upper bits hold the number of the call among the
// large calls, so the word only grows. The step number does not fit there: small
// calls can use up 2^40 steps in two weeks.
const pieceBits = 24

// partPlan divides n elements among the ranks, and the part of each rank into
// pieces.
type partPlan struct {
	n, part, piece int // elements: in total, per rank, per piece
	pieces         int // pieces in the part of one rank
}

func newPartPlan(bytes, ranks int, t kernel.DType, piece int) partPlan {
	size := t.Size()
	// Parts and pieces end at cache lines, so no two ranks write to the same line.
	round := func(elems, of int) int { return (elems + of - 1) / of * of }
	p := partPlan{n: bytes / size, piece: round(max(piece/size, 1), 64/size)}
	p.part = round((p.n+ranks-1)/ranks, 64/size)
	p.pieces = (p.part + p.piece - 1) / p.piece
	if most := 1<<pieceBits - 1; p.pieces > most {
		p.piece = round((p.part+most-1)/most, 64/size)
		p.pieces = (p.part + p.piece - 1) / p.piece
	}
	return p
}

// bounds returns the element range [lo, hi) of piece j in the part of rank r.
func (p *partPlan) bounds(r, j int) (lo, hi int) {
	end := min((r+1)*p.part, p.n)
	lo = min(r*p.part+j*p.piece, end)
	return lo, min(lo+p.piece, end)
}

// allReduceParts runs an AllReduce whose data does not fit into a slot, between
// goroutines. Each rank reduces its own part of all sources into its own
// destination. The other ranks copy that part from there, piece by piece. Buffers
// stay exposed until awaitReaders; on an error Run's endFailed waits for the
// readers instead.
func (e *Engine) allReduceParts(c *engine.Call) error {
	h, err := e.beginCall(c)
	if err != nil {
		return err
	}
	e.head.n = direct
	e.largeCalls++
	e.expose(c, c.Src)
	e.exposedStep = e.step
	e.publish(h)
	for r := range e.g.boards {
		if r == e.rank {
			continue
		}
		if _, err := e.awaitSlot(r); err != nil {
			return err
		}
	}
	e.allDone = max(e.allDone, e.step-1)
	return e.exchangeParts(c)
}

// exchangeParts runs the pieces of an AllReduce. All ranks have arrived and their
// buffers are exposed. On an error, Run calls stopReading and fails the group,
// which ends the waits of the other ranks.
func (e *Engine) exchangeParts(c *engine.Call) error {
	if err := e.startReading(); err != nil {
		return err
	}
	p := newPartPlan(c.Dst.Bytes(), len(e.g.boards), c.Dst.Type, e.g.opt.Piece)
	// A rank copies piece j of the others after it has reduced its own piece j+1.
	// The other ranks have usually finished their piece j by then.
	for j := range p.pieces + 1 {
		if e.g.parking.Stopped() {
			return wait.ErrStopped
		}
		if j < p.pieces {
			e.reducePiece(c, &p, j)
		}
		if j > 0 {
			if err := e.fetchPieces(c, &p, j-1); err != nil {
				return err
			}
		}
	}
	e.stopReading()
	e.storeDone()
	return nil
}

// reducePiece reduces piece j of this rank's part and publishes it in the progress
// word. The store of the word comes after the stores of the elements, so a rank
// that sees the word sees the elements.
func (e *Engine) reducePiece(c *engine.Call, p *partPlan, j int) {
	lo, hi := p.bounds(e.rank, j)
	for r := range e.g.boards {
		x := e.exposed(r)
		e.from[r], e.scale[r] = x.src.At(lo), x.scale
	}
	e.combine(c, c.Dst.At(lo), hi-lo, c.Dst.Type)
	clear(e.from)
	e.board.progress().Store(e.largeCalls<<pieceBits | uint64(j+1))
	e.g.parking.Wake(e.board.progress())
}

// fetchPieces copies piece j of the part of every other rank. It waits until the
// rank's progress word says that the piece is reduced. The wait returns an error if
// the rank leaves, the group fails, or the context ends.
func (e *Engine) fetchPieces(c *engine.Call, p *partPlan, j int) error {
	n := len(e.g.boards)
	for i := 1; i < n; i++ {
		r := (e.rank + i) % n
		b := e.g.boards[r]
		ok, err := e.w.AtLeast(b.progress(), e.largeCalls<<pieceBits|uint64(j+1), b.left())
		if err != nil {
			return err
		}
		if !ok {
			return e.rankLeft([]int{r}, e.op, e.seq)
		}
		lo, hi := p.bounds(r, j)
		engine.Copy(c.Dst.Slice(lo, hi-lo), e.exposed(r).dst.Slice(lo, hi-lo))
	}
	return nil
}
