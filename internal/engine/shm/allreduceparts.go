package shm

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/wait"
)

// pieceBits is how many bits of a progress word count pieces; the rest is the
// number of the call among the large ones, so that the word only ever grows. The
// step would not do: small calls may use up 2^40 of them in two weeks.
const pieceBits = 24

// plan divides n elements among the ranks and each rank's part into pieces.
type partPlan struct {
	n, part, piece int // elements: in all, per rank, per piece
	pieces         int // per rank
}

func newPartPlan(bytes, ranks int, t kernel.DType, piece int) partPlan {
	size := t.Size()
	// Parts end at cache lines, so that no two ranks write one.
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

// bounds is where piece j of rank r's part begins and ends.
func (p *partPlan) bounds(r, j int) (lo, hi int) {
	end := min((r+1)*p.part, p.n)
	lo = min(r*p.part+j*p.piece, end)
	return lo, min(lo+p.piece, end)
}

// parts is AllReduce for data that does not fit into a slot: each rank reduces
// its own part of everybody's source into its own destination, and the others
// fetch it from there, piece by piece.
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

// exchangeParts does so when all ranks have arrived.
func (e *Engine) exchangeParts(c *engine.Call) error {
	if err := e.startReading(); err != nil {
		return err
	}
	p := newPartPlan(c.Dst.Bytes(), len(e.g.boards), c.Dst.Type, e.g.opt.Piece)
	// A piece is fetched one turn after it was reduced: by then the others
	// have usually finished theirs.
	for j := range p.pieces + 1 {
		if e.g.lot.Stopped() {
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

// reducePiece reduces one piece of this rank's part.
func (e *Engine) reducePiece(c *engine.Call, p *partPlan, j int) {
	lo, hi := p.bounds(e.rank, j)
	for r := range e.g.boards {
		x := e.exposed(r)
		e.from[r], e.scale[r] = x.src.At(lo), x.scale
	}
	e.combine(c, c.Dst.At(lo), hi-lo, c.Dst.Type)
	clear(e.from)
	e.board.progress().Store(e.largeCalls<<pieceBits | uint64(j+1))
	e.g.lot.Wake(e.board.progress())
}

// fetchPieces copies piece j of every other rank's part.
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
			return e.rankLeft(r, e.op, e.seq)
		}
		lo, hi := p.bounds(r, j)
		engine.Copy(c.Dst.Slice(lo, hi-lo), e.exposed(r).dst.Slice(lo, hi-lo))
	}
	return nil
}
