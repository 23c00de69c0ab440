package network

import (
	"errors"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
)

// nobody in place of a rank says that nothing is sent, or received.
const nobody = -1

// send sends m and returns when it may be changed.
func (e *Engine) send(to int, m engine.Mem) error {
	return e.move(to, m, m.Bytes(), nobody, engine.Mem{}, 0)
}

// recv receives m.
func (e *Engine) recv(from int, m engine.Mem) error {
	return e.move(nobody, engine.Mem{}, 0, from, m, m.Bytes())
}

// swap sends and receives at once.
func (e *Engine) swap(to int, out engine.Mem, from int, in engine.Mem) error {
	return e.move(to, out, out.Bytes(), from, in, in.Bytes())
}

// move sends and receives a frame each: whole transfers, or segments of ones of
// the given sizes in bytes.
func (e *Engine) move(to int, out engine.Mem, outWhole, from int, in engine.Mem, inWhole int) error {
	var o, i *transport.Frame
	if to != nobody {
		o = &e.out
		o.Peer, o.Head, o.Body = to, e.head, bytesOf(out)
		setWhole(&o.Head, outWhole)
	}
	if from != nobody {
		i = &e.in
		i.Peer, i.Body = from, bytesOf(in)
	}
	if o == nil && i == nil {
		return nil
	}
	e.to, e.from = to, from
	if err := e.mesh.Exchange(e.w, o, i); err != nil {
		if wrong := (*transport.LengthError)(nil); errors.As(err, &wrong) {
			return e.wrongLength(wrong, inWhole)
		}
		return err
	}
	if i == nil {
		return nil
	}
	if !agrees(&e.head, &i.Head) {
		if f := e.disagreement(from, &i.Head); f != nil {
			return f
		}
	}
	e.met[from] = e.step
	if sent := whole(&i.Head); sent != inWhole {
		return e.wrongCount(from, inWhole, sent)
	}
	return nil
}

// wrongLength explains a frame that was not as long as expected.
func (e *Engine) wrongLength(l *transport.LengthError, want int) error {
	if f := e.disagreement(l.Peer, &e.in.Head); f != nil {
		return f
	}
	if sent := whole(&e.in.Head); sent != want {
		return e.wrongCount(l.Peer, want, sent)
	}
	return e.disagree(engine.SegmentsDiffer, engine.Side{N: int64(l.Want)}, engine.Side{Rank: l.Peer, N: int64(l.Sent)})
}

// swapReduce is swap for a transfer that is combined with own, segment by
// segment, into dst. It may be that out or own is dst.
func (e *Engine) swapReduce(r *reduction, to int, out engine.Mem, from int, dst, own engine.Mem) error {
	tmp := e.room(forSegment, min(dst.N, e.segmentElems(dst.Type)), dst.Type)
	sends, receives := 0, 0
	if to != nobody {
		sends = e.segments(out)
	}
	if from != nobody {
		receives = e.segments(dst)
	}
	for j := range max(sends, receives) {
		o, i, got := nobody, nobody, engine.Mem{}
		if j < sends {
			o = to
		}
		if j < receives {
			i = from
			got = tmp.Slice(0, e.segment(dst, j).N)
		}
		if err := e.move(o, e.segment(out, j), out.Bytes(), i, got, dst.Bytes()); err != nil {
			return err
		}
		if j < receives {
			r.add(e.segment(dst, j), got, e.segment(own, j))
		}
	}
	return nil
}

// sendSegments sends m to a rank that combines it as it comes.
func (e *Engine) sendSegments(to int, m engine.Mem) error {
	for j := range e.segments(m) {
		if err := e.move(to, e.segment(m, j), m.Bytes(), nobody, engine.Mem{}, 0); err != nil {
			return err
		}
	}
	return nil
}

// recvSegments receives what sendSegments sends.
func (e *Engine) recvSegments(from int, m engine.Mem) error {
	for j := range e.segments(m) {
		if err := e.move(nobody, engine.Mem{}, 0, from, e.segment(m, j), m.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// segments is how many frames a transfer takes. Even an empty one takes one, so
// that whoever expects something else finds out.
func (e *Engine) segments(m engine.Mem) int {
	return max(1, (m.Bytes()+e.opt.Segment-1)/e.opt.Segment)
}

// segment is the jth segment of m, empty behind its end.
func (e *Engine) segment(m engine.Mem, j int) engine.Mem {
	return piece(m, j, e.segmentElems(m.Type))
}

func (e *Engine) segmentElems(t kernel.DType) int { return e.opt.Segment / max(t.Size(), 1) }

// piece is the jth piece of m when it is cut into pieces of per elements.
func piece(m engine.Mem, j, per int) engine.Mem {
	lo := min(j*per, m.N)
	return m.Slice(lo, min(per, m.N-lo))
}

func bytesOf(m engine.Mem) []byte { return unsafe.Slice((*byte)(m.Ptr), m.Bytes()) }
