package enginetest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A prepared operation is one rank's call, with the memory that it uses and the
// contents that this memory must have afterwards.
type prepared struct {
	op    Op
	call  engine.Call
	after []expectation
}

// expectation is what some memory must hold when the operation has returned.
type expectation struct {
	what string
	got  []byte
	want []byte
}

func (p *prepared) expect(what string, got, want []byte) {
	p.after = append(p.after, expectation{what, got, want})
}

// prepare allocates the memory of one rank's call in a, fills the source, and notes what each buffer must
// hold afterwards. Results come from c, which the ranks share.
func (o Op) prepare(a *arena, c *cache, rank, size int) prepared {
	p := prepared{op: o, call: engine.Call{
		Verb: o.Verb, ReduceOp: o.ReduceOp, Uneven: o.Uneven, Root: o.root(size), Name: o.Name,
	}}
	if o.ReduceOp == engine.PreMul {
		p.call.Scale = o.scale(rank)
	}
	if o.Verb == engine.Barrier {
		return p
	}
	in, out := o.sources(c, rank, size), o.results(c, rank, size)
	src, dst := layout{op: o, mine: rank}, layout{op: o, mine: rank}
	switch {
	case o.Verb == engine.Broadcast:
		dst.take(a, out, false)
		if rank == p.call.Root {
			dst.fill(0, in[0])
		}
		p.expectAll("buffer", &dst, out)
		p.call.Src, p.call.Dst = dst.whole, dst.whole
		return p
	case o.Verb == engine.ExScan && rank == 0:
		o.prepareFirst(&p, a, in[0])
		return p
	case !o.InPlace || len(in) == 0 || len(out) == 0:
		src.take(a, in, o.Uneven && o.dividesSource())
		dst.take(a, out, o.Uneven && o.dividesResult())
		src.fillAll(in)
		p.expectAll("source", &src, in)
		p.expectAll("destination", &dst, out)
	case len(in) == len(out):
		dst.take(a, out, false)
		dst.fillAll(in)
		src = dst
		p.expectAll("destination", &dst, out)
	case len(out) == size:
		dst.take(a, out, o.Uneven)
		dst.fill(rank, in[0])
		src.whole = dst.mems[rank]
		p.expectAll("destination", &dst, out)
	default:
		src.take(a, in, o.Uneven)
		src.fillAll(in)
		dst.whole = src.mems[rank]
		in = slices.Clone(in)
		in[rank] = out[0]
		p.expectAll("source and destination", &src, in)
	}
	p.call.Src, p.call.Dst = src.whole, dst.whole
	if o.Uneven && o.dividesSource() && len(in) > 0 {
		p.call.Src, p.call.SrcParts = engine.Mem{}, src.mems
	}
	if o.Uneven && o.dividesResult() && len(out) > 0 {
		p.call.Dst, p.call.DstParts = engine.Mem{}, dst.mems
	}
	return p
}

// prepareFirst prepares an ExScan on rank 0, which must write neither to its source nor to the destination
// that it may pass.
func (o Op) prepareFirst(p *prepared, a *arena, in []byte) {
	src, dst := layout{op: o}, layout{op: o}
	src.take(a, [][]byte{in}, false)
	src.fill(0, in)
	p.expectAll("source", &src, [][]byte{in})
	p.call.Src = src.whole
	switch {
	case o.InPlace:
		p.call.Dst = src.whole
	case o.Seed%2 == 1:
		before := bytes.Repeat([]byte{0xA5}, len(in))
		dst.take(a, [][]byte{before}, false)
		dst.fill(0, before)
		p.expectAll("destination", &dst, [][]byte{before})
		p.call.Dst = dst.whole
	}
}

func (o Op) dividesSource() bool {
	return o.Verb == engine.ReduceScatter || o.Verb == engine.Scatter || o.Verb == engine.AllToAll
}

func (o Op) dividesResult() bool {
	return o.Verb == engine.AllGather || o.Verb == engine.Gather || o.Verb == engine.AllToAll
}

// layout is the memory of one side of a call, share by share.
type layout struct {
	op    Op
	mine  int // index of this rank's share, which is never missing
	data  [][]byte
	mems  []engine.Mem
	whole engine.Mem // of an even form
}

// take allocates shares with the given contents: separately, or adjacent. It may represent an empty share by
// a nil pointer or a missing part, which are valid.
func (l *layout) take(a *arena, shares [][]byte, apart bool) {
	if len(shares) == 0 {
		return
	}
	t := l.op.Type
	var row []byte
	if !apart {
		n := 0
		for _, s := range shares {
			n += len(s)
		}
		row = a.take(n, t.Size())
		l.whole = memOf(row, t)
		if n == 0 && l.op.Seed%2 == 0 {
			l.whole.Ptr = nil // a nil pointer is valid for an empty slice
		}
	}
	for i, s := range shares {
		var part []byte
		if apart {
			part = a.take(len(s), t.Size())
		} else {
			part, row = row[:len(s)], row[len(s):]
		}
		m := memOf(part, t)
		if apart && len(s) == 0 && i != l.mine && mix(l.op.Seed, uint64(i))%2 == 0 {
			m = engine.Mem{}
		}
		l.data = append(l.data, part)
		l.mems = append(l.mems, m)
	}
}

func (l *layout) fill(i int, share []byte) { copy(l.data[i], share) }

func (l *layout) fillAll(shares [][]byte) {
	for i, s := range shares {
		l.fill(i, s)
	}
}

func (p *prepared) expectAll(side string, l *layout, shares [][]byte) {
	for i, s := range shares {
		what := side
		if len(shares) > 1 {
			what = fmt.Sprintf("share %d of the %s", i, side)
		}
		p.expect(what, l.data[i], s)
	}
}

// verify compares the memory with the expectations, and returns an error that names the first wrong element.
func (p *prepared) verify(rank, size int) error {
	for _, e := range p.after {
		if bytes.Equal(e.got, e.want) {
			continue
		}
		t := p.op.Type
		for i := range len(e.want) / t.Size() {
			got, want := bitsAt(e.got, t, i), bitsAt(e.want, t, i)
			if got != want {
				return fmt.Errorf("%v: rank %d of %d: element %d of %d of the %s is %s, want %s",
					p.op, rank, size, i, len(e.want)/t.Size(), e.what, show(got, t), show(want, t))
			}
		}
	}
	return nil
}

// sameCall reports whether an engine has left a call unchanged.
func sameCall(a, b *engine.Call) bool {
	return a.Dst == b.Dst && a.Src == b.Src && slices.Equal(a.DstParts, b.DstParts) &&
		slices.Equal(a.SrcParts, b.SrcParts) && a.Verb == b.Verb && a.ReduceOp == b.ReduceOp &&
		a.Root == b.Root && a.Scale == b.Scale && a.Name == b.Name
}

func bitsAt(b []byte, t kernel.DType, i int) uint64 {
	switch t.Size() {
	case 1:
		return uint64(b[i])
	case 2:
		return uint64(elements[uint16](b)[i])
	case 4:
		return uint64(elements[uint32](b)[i])
	default:
		return elements[uint64](b)[i]
	}
}
