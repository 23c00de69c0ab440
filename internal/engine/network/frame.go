package network

import (
	"errors"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
)

// noRank, in place of a rank, says that nothing is sent, or nothing received.
const noRank = -1

// send sends m. When it returns, m may be changed.
func (e *Engine) send(to int, m engine.Mem) error {
	return e.move(to, m, m.Bytes(), noRank, engine.Mem{}, 0)
}

// recv receives into m.
func (e *Engine) recv(from int, m engine.Mem) error {
	return e.move(noRank, engine.Mem{}, 0, from, m, m.Bytes())
}

// swap sends out and receives in at the same time.
func (e *Engine) swap(to int, out engine.Mem, from int, in engine.Mem) error {
	return e.move(to, out, out.Bytes(), from, in, in.Bytes())
}

// move sends one frame and receives one frame at the same time. A frame is a whole
// transfer or one segment of it; outWhole and inWhole are the sizes of the whole
// transfers, in bytes. move blocks until both are done, the group fails, or the
// context ends. It checks that the received frame belongs to the same call.
func (e *Engine) move(to int, out engine.Mem, outWhole, from int, in engine.Mem, inWhole int) error {
	var o, i *transport.Frame
	if to != noRank {
		o = &e.out
		o.Peer, o.Head, o.Body = to, e.head, bytesOf(out)
		setTransferBytes(&o.Head, outWhole)
	}
	if from != noRank {
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
	e.lastStep[from] = e.step
	if sent := transferBytes(&i.Head); sent != inWhole {
		return e.wrongCount(from, inWhole, sent)
	}
	return nil
}

// wrongLength returns the failure for a frame of unexpected length.
func (e *Engine) wrongLength(l *transport.LengthError, want int) error {
	if f := e.disagreement(l.Peer, &e.in.Head); f != nil {
		return f
	}
	if sent := transferBytes(&e.in.Head); sent != want {
		return e.wrongCount(l.Peer, want, sent)
	}
	return e.disagree(engine.SegmentsDiffer, engine.Side{N: int64(l.Want)}, engine.Side{Rank: l.Peer, N: int64(l.Sent)})
}

// swapReduce exchanges out for a transfer that is combined with own into dst,
// segment by segment. out or own may be dst.
func (e *Engine) swapReduce(r *reduction, to int, out engine.Mem, from int, dst, own engine.Mem) error {
	tmp := e.scratchMem(forSegment, min(dst.N, e.segmentElems(dst.Type)), dst.Type)
	sends, receives := 0, 0
	if to != noRank {
		sends = e.segments(out)
	}
	if from != noRank {
		receives = e.segments(dst)
	}
	for j := range max(sends, receives) {
		o, i, got := noRank, noRank, engine.Mem{}
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

// sendSegments sends m in segments to a rank that combines it segment by segment.
func (e *Engine) sendSegments(to int, m engine.Mem) error {
	for j := range e.segments(m) {
		if err := e.move(to, e.segment(m, j), m.Bytes(), noRank, engine.Mem{}, 0); err != nil {
			return err
		}
	}
	return nil
}

// recvSegments receives what sendSegments sends.
func (e *Engine) recvSegments(from int, m engine.Mem) error {
	for j := range e.segments(m) {
		if err := e.move(noRank, engine.Mem{}, 0, from, e.segment(m, j), m.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// segments returns the number of frames of a transfer. An empty transfer takes one
// frame, so that a receiver that expects something else detects the mismatch.
func (e *Engine) segments(m engine.Mem) int {
	return max(1, (m.Bytes()+e.opt.Segment-1)/e.opt.Segment)
}

// segment returns segment j of m; it is empty beyond the end of m.
func (e *Engine) segment(m engine.Mem, j int) engine.Mem {
	return piece(m, j, e.segmentElems(m.Type))
}

// segmentElems returns the number of elements of a segment.
func (e *Engine) segmentElems(t kernel.DType) int { return e.opt.Segment / max(t.Size(), 1) }

// piece returns piece j of m, when m is divided into pieces of per elements.
func piece(m engine.Mem, j, per int) engine.Mem {
	lo := min(j*per, m.N)
	return m.Slice(lo, min(per, m.N-lo))
}

func bytesOf(m engine.Mem) []byte { return unsafe.Slice((*byte)(m.Ptr), m.Bytes()) }
