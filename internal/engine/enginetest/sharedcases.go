package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/envvar"
	"github.com/tutti-go/tutti/internal/kernel"
)

// batchesEnv is the number of random batches over shared buffers that an engine
// runs, on all numbers of ranks together. Unset: a sample.
const batchesEnv = "TUTTI_TEST_BATCHES"

// longBatches returns the value of batchesEnv, or zero.
func longBatches() (int, error) { return envvar.Int(os.Getenv, batchesEnv, 0) }

// sharedCases are random batches whose operations share a few buffers. Each batch
// is either refused, or has the results of its operations run one by one.
func sharedCases(opt Options) []Case {
	var groups []int
	for _, ranks := range opt.ranks() {
		if ranks > 1 || len(opt.ranks()) == 1 {
			groups = append(groups, ranks)
		}
	}
	rounds := 200
	if opt.Light {
		rounds = 60
	}
	n, wrong := longBatches()
	if n > 0 {
		rounds = (n + len(groups) - 1) / len(groups)
	}
	var cases []Case
	for _, ranks := range groups {
		var run, refused atomic.Int64 // counted on rank 0
		cases = append(cases, Case{
			Name: fmt.Sprintf("batch/shared/ranks=%d", ranks), Ranks: ranks,
			Body: func(ctx context.Context, r *Rank) error {
				if wrong != nil {
					return wrong
				}
				s := newSharedRun(r, opt)
				for i := range rounds {
					ran, err := s.batch(ctx, mix(uint64(i), uint64(ranks), 'b'))
					if err != nil {
						return fmt.Errorf("batch %d: %w", i, err)
					}
					switch {
					case r.Rank() != 0:
					case ran:
						run.Add(1)
					default:
						refused.Add(1)
					}
				}
				return nil
			},
			Note: func() string {
				return fmt.Sprintf("%d batches: %d right, %d refused", run.Load()+refused.Load(), run.Load(), refused.Load())
			},
		})
	}
	return cases
}

const (
	sharedBuffers = 4
	sharedMost    = 2000 // elements of the largest share
)

// sharedBytes returns the size of a buffer that holds the shares of all ranks, gaps
// between them, and half as much again.
func sharedBytes(most, size int) int { return (8*most + 16) * size * 3 / 2 }

// span is a part of a shared buffer; off and n are in bytes.
type span struct{ buf, off, n int }

func (s span) overlaps(o span) bool {
	return s.buf == o.buf && s.off < o.off+o.n && o.off < s.off+s.n
}

// A sharedOp is an operation on shared buffers. Its spans are the same on all
// ranks.
type sharedOp struct {
	Op
	counts  []int // elements of the ranks' shares, if uneven
	src     span  // where the source begins
	dst     span
	gap     int  // bytes between the parts of an uneven side
	sparse  bool // ranks pass nothing for a side that they do not use
	message bool // a message from rank Root to rank to
	to, tag int
}

// share returns how many bytes rank from sends to rank to.
func (o *sharedOp) share(from, to int) int {
	n := o.N
	if o.Uneven {
		n = o.counts[(from+to)%len(o.counts)]
	}
	return n * o.Type.Size()
}

// spans returns the spans that a rank passes: one for a whole side, one per rank
// for a divided side.
func (o *sharedOp) spans(rank, size int) (src, dst []span) {
	whole := func(s span, n int) []span { return []span{{s.buf, s.off, n}} }
	divided := func(s span, n func(i int) int) []span {
		var list []span
		stride := o.N*o.Type.Size() + o.gap
		for i := range size {
			list = append(list, span{s.buf, s.off + i*stride, n(i)})
		}
		return list
	}
	all := func(int) int { return o.N * o.Type.Size() }
	switch o.Verb {
	case engine.AllReduce, engine.Reduce, engine.Broadcast, engine.Scan, engine.ExScan:
		src, dst = whole(o.src, all(0)), whole(o.dst, all(0))
	case engine.AllGather, engine.Gather:
		src, dst = whole(o.src, o.share(rank, 0)), divided(o.dst, func(i int) int { return o.share(i, 0) })
		if o.InPlace {
			src = dst[rank : rank+1]
		}
	case engine.ReduceScatter, engine.Scatter:
		src, dst = divided(o.src, func(i int) int { return o.share(0, i) }), whole(o.dst, o.share(0, rank))
		if o.InPlace {
			dst = src[rank : rank+1]
		}
	case engine.AllToAll:
		src = divided(o.src, func(i int) int { return o.share(rank, i) })
		dst = divided(o.dst, func(i int) int { return o.share(i, rank) })
		if o.InPlace {
			dst = src
		}
	}
	if o.InPlace && len(src) == 1 && len(dst) == 1 {
		dst = src
	}
	return src, dst
}

// reads and writes report, independently of package engine, what memory a rank
// uses.
func (o *sharedOp) reads(rank, size int) bool {
	switch {
	case o.message:
		return rank == o.root(size)
	case o.Verb == engine.Broadcast, o.Verb == engine.Scatter:
		return rank == o.root(size)
	}
	return o.Verb != engine.Barrier
}

func (o *sharedOp) writes(rank, size int) bool {
	switch {
	case o.message:
		return rank == o.to%size
	case o.Verb == engine.Reduce, o.Verb == engine.Gather:
		return rank == o.root(size)
	case o.Verb == engine.Broadcast:
		return rank != o.root(size)
	case o.Verb == engine.ExScan:
		return rank > 0
	}
	return o.Verb != engine.Barrier
}

// root returns the root of a verb or the sender of a message.
func (o *sharedOp) root(size int) int {
	if o.message {
		return o.Root % size
	}
	return o.Op.root(size)
}

// A sharedRun is one rank's part in a case: its own memory, and the reference,
// which is the memory of all ranks.
type sharedRun struct {
	r    *Rank
	opt  Options
	pool []byte
	own  [][]byte
	all  [][][]byte
	foot engine.Footprint
	msgs []*engine.Message
}

func newSharedRun(r *Rank, opt Options) *sharedRun {
	n := sharedBytes(sharedMost, r.Size())
	s := &sharedRun{r: r, opt: opt, pool: newInput(kernel.Uint64, wild, 1, 0, 1, n/4), own: newShared(n)}
	for range r.Size() {
		s.all = append(s.all, newShared(n))
	}
	return s
}

func newShared(n int) [][]byte {
	list := make([][]byte, sharedBuffers)
	for i := range list {
		list[i] = newBytes(n)
	}
	return list
}

// fill writes a rank's initial contents to the first n bytes of each buffer.
func (s *sharedRun) fill(bufs [][]byte, n int, seed uint64, rank int) {
	for i, b := range bufs {
		off := int(mix(seed, uint64(rank), uint64(i)) % uint64(len(s.pool)-n))
		copy(b[:n], s.pool[off:])
	}
}

// batch draws a batch and runs it, unless a rank refuses it; all ranks then agree not to run it. It returns
// an error if a byte of any buffer differs from the sequential reference.
func (s *sharedRun) batch(ctx context.Context, seed uint64) (ran bool, err error) {
	rnd := random(seed)
	used, ops := s.draw(&rnd)
	for rank := range s.all {
		s.fill(s.all[rank], used, seed, rank)
	}
	copy2(s.own, s.all[s.r.Rank()], used)
	refused, err := s.agreeOnRefusal(ops)
	if refused || err != nil {
		return false, err
	}
	for i := range ops {
		ops[i].reference(s.all)
	}
	if err := s.run(ctx, ops); err != nil {
		return false, fmt.Errorf("%v: %w", ops, err)
	}
	for i, b := range s.own {
		want := s.all[s.r.Rank()][i][:used]
		if !bytes.Equal(b[:used], want) {
			at := 0
			for b[at] == want[at] {
				at++
			}
			return false, fmt.Errorf("%v: rank %d of %d: byte %d of buffer %d is %#x, want %#x",
				ops, s.r.Rank(), s.r.Size(), at, i, b[at], want[at])
		}
	}
	return true, nil
}

func copy2(dst, src [][]byte, n int) {
	for i := range dst {
		copy(dst[i][:n], src[i])
	}
}

// agreeOnRefusal reports whether any rank refuses the batch. It checks that a batch is refused exactly where
// operations conflict, and on every rank if all ranks pass the same spans. Each rank computes the answers of
// all ranks, without communication.
func (s *sharedRun) agreeOnRefusal(ops []sharedOp) (refused bool, err error) {
	size := s.r.Size()
	same, touched := true, false
	for i := range ops {
		o := &ops[i]
		same = same && !o.message && !o.sparse && !o.Uneven && !o.InPlace
	}
	cross := make([]error, size)
	for rank := range size {
		bufs := s.all[rank]
		if rank == s.r.Rank() {
			bufs = s.own
		}
		one, both := s.check(bufs, ops, rank)
		if one != nil && !errors.Is(one, engine.ErrInvalid) || both != nil && !errors.Is(both, engine.ErrInvalid) {
			return false, fmt.Errorf("%v: rank %d: %w, %w", ops, rank, one, both)
		}
		refused = refused || one != nil || both != nil
		cross[rank] = both
		if conflicts(ops, rank, size) {
			touched = true
			if both == nil {
				return false, fmt.Errorf("%v: rank %d of %d does not refuse operations that touch each other's memory", ops, rank, size)
			}
		}
	}
	for rank, err := range cross {
		if same && (err != nil) != touched {
			return false, fmt.Errorf("%v: operations touch each other's memory: %v, and rank %d of %d says %w", ops, touched, rank, size, err)
		}
	}
	return refused, nil
}

// conflicts reports whether a rank uses memory in two operations of which one
// writes it.
func conflicts(ops []sharedOp, rank, size int) bool {
	type access struct {
		span
		op    int
		write bool
	}
	var list []access
	for i := range ops {
		src, dst := ops[i].spans(rank, size)
		if ops[i].reads(rank, size) {
			for _, x := range src {
				list = append(list, access{x, i, false})
			}
		}
		if ops[i].writes(rank, size) {
			for _, x := range dst {
				list = append(list, access{x, i, true})
			}
		}
	}
	for i, a := range list {
		for _, b := range list[:i] {
			if a.op != b.op && (a.write || b.write) && a.n > 0 && b.n > 0 && a.overlaps(b.span) {
				return true
			}
		}
	}
	return false
}

// check checks a batch as the public API does: each operation, with error one, and all of them together, with
// error both. It leaves the calls in s.r.calls and the messages in s.msgs.
func (s *sharedRun) check(bufs [][]byte, ops []sharedOp, rank int) (one, both error) {
	size := s.r.Size()
	s.foot.Reset()
	s.r.calls, s.msgs = s.r.calls[:0], s.msgs[:0]
	for i := range ops {
		o := &ops[i]
		if !o.message {
			s.r.calls = append(s.r.calls, o.call(bufs, rank, size))
			c := &s.r.calls[len(s.r.calls)-1]
			if err := c.Check(rank, size); err != nil {
				one = err
			}
			s.foot.AddCall(i, c)
			continue
		}
		for _, m := range o.messages(bufs, rank, size) {
			if err := m.Check(rank, size); err != nil {
				one = err
			}
			s.msgs = append(s.msgs, m)
			s.foot.AddMessage(i, m.Send, m.Mem)
		}
	}
	return one, s.foot.Check(rank, size)
}

// call returns the operation as a rank calls it.
func (o *sharedOp) call(bufs [][]byte, rank, size int) engine.Call {
	c := engine.Call{Verb: o.Verb, ReduceOp: o.ReduceOp, Uneven: o.Uneven, Root: o.root(size)}
	src, dst := o.spans(rank, size)
	put := func(list []span, divided bool, whole *engine.Mem, parts *[]engine.Mem) {
		mem := func(x span) engine.Mem { return memOf(bufs[x.buf][x.off:x.off+x.n], o.Type) }
		switch {
		case len(list) == 0:
		case divided && o.Uneven:
			for _, x := range list {
				*parts = append(*parts, mem(x))
			}
		default:
			last := list[len(list)-1]
			*whole = mem(span{last.buf, list[0].off, last.off + last.n - list[0].off})
		}
	}
	if !o.sparse || o.reads(rank, size) || o.Verb == engine.Broadcast {
		put(src, o.dividesSource(), &c.Src, &c.SrcParts)
	}
	if !o.sparse || o.writes(rank, size) || o.Verb == engine.Broadcast {
		put(dst, o.dividesResult(), &c.Dst, &c.DstParts)
	}
	return c
}

// messages returns a rank's sides of a message.
func (o *sharedOp) messages(bufs [][]byte, rank, size int) (list []*engine.Message) {
	src, dst := o.spans(rank, size)
	mem := func(x span) engine.Mem { return memOf(bufs[x.buf][x.off:x.off+x.n], o.Type) }
	if o.writes(rank, size) {
		list = append(list, &engine.Message{Peer: o.root(size), Tag: o.tag, Mem: mem(dst[0])})
	}
	if o.reads(rank, size) {
		list = append(list, &engine.Message{Send: true, Peer: o.to % size, Tag: o.tag, Mem: mem(src[0])})
	}
	return list
}

// run runs a batch on this rank's memory, as a Batch does: it posts the messages, runs the collectives, and
// finishes all messages even after an error. It returns the first error.
func (s *sharedRun) run(ctx context.Context, ops []sharedOp) error {
	if one, both := s.check(s.own, ops, s.r.Rank()); one != nil || both != nil {
		return errors.Join(one, both)
	}
	var first error
	for _, m := range s.msgs {
		s.r.Post(m)
	}
	if len(s.r.calls) > 0 {
		s.r.seq++
		first = s.r.Run(ctx, s.r.seq, s.r.calls)
	}
	for _, send := range []bool{false, true} {
		for _, m := range s.msgs {
			if m.Send != send {
				continue
			}
			if err := s.r.Finish(ctx, m); first == nil {
				first = err
			}
		}
	}
	return first
}

// reference applies an operation to the memory of all ranks, which this rank keeps a copy of.
func (o *sharedOp) reference(all [][][]byte) {
	size := len(all)
	if o.Verb == engine.Barrier {
		return
	}
	at := func(rank int, x span) []byte { return all[rank][x.buf][x.off : x.off+x.n] }
	in, out := make([][][]byte, size), make([][][]byte, size)
	for rank := range size {
		src, dst := o.spans(rank, size)
		for _, x := range src {
			in[rank] = append(in[rank], bytes.Clone(at(rank, x)))
		}
		for _, x := range dst {
			out[rank] = append(out[rank], at(rank, x))
		}
	}
	fold := func(part, ranks int) []byte {
		list := make([][]byte, ranks)
		for rank := range list {
			list[rank] = in[rank][part]
		}
		return reduce(o.Type, o.ReduceOp, nil, list)
	}
	root := o.root(size)
	for rank := range size {
		if !o.writes(rank, size) {
			continue
		}
		switch {
		case o.message, o.Verb == engine.Broadcast:
			copy(out[rank][0], in[root][0])
		case o.Verb == engine.AllReduce, o.Verb == engine.Reduce:
			copy(out[rank][0], fold(0, size))
		case o.Verb == engine.ReduceScatter:
			copy(out[rank][0], fold(rank, size))
		case o.Verb == engine.Scan:
			copy(out[rank][0], fold(0, rank+1))
		case o.Verb == engine.ExScan:
			copy(out[rank][0], fold(0, rank))
		case o.Verb == engine.Scatter:
			copy(out[rank][0], in[root][rank])
		default:
			for from := range size {
				part := 0
				if o.Verb == engine.AllToAll {
					part = rank
				}
				copy(out[rank][from], in[from][part])
			}
		}
	}
}

// draw draws the operations of a batch, and how many bytes of each buffer
// they use.
func (s *sharedRun) draw(rnd *random) (used int, ops []sharedOp) {
	size := s.r.Size()
	most := 8 // elements of a share
	switch rnd.below(100) {
	case 0:
		most = sharedMost
	case 1, 2, 3, 4:
		most = 200
	}
	used = sharedBytes(most, size)
	verbs := s.opt.allVerbs()
	for i := range 2 + rnd.below(5) {
		o := sharedOp{sparse: rnd.below(4) == 0}
		o.Verb, o.Type = verbs[rnd.below(len(verbs))], sharedTypes[rnd.below(len(sharedTypes))]
		o.Root, o.Seed = rnd.below(size), rnd.next()
		if rnd.below(8) == 0 {
			o.Verb, o.message, o.to = engine.Broadcast, true, rnd.below(size)
		}
		if o.reduces() {
			of := s.opt.reduceOps(o.Verb, o.Type)
			o.ReduceOp = of[rnd.below(len(of))]
		}
		forms := o.forms()
		form := forms[rnd.below(len(forms))]
		o.InPlace, o.Uneven = form.InPlace, form.Uneven
		o.N = rnd.below(most + 1)
		o.tag = i % 2 // messages between two ranks with one tag keep their order
		if o.Uneven {
			o.gap = rnd.below(3) * o.Type.Size()
			for range size {
				o.counts = append(o.counts, rnd.below(o.N+1))
			}
		}
		o.place(rnd, used, size)
		ops = append(ops, o)
	}
	return used, ops
}

// sharedTypes are types for which the order does not change a reduction's result.
var sharedTypes = []kernel.DType{kernel.Uint8, kernel.Int32, kernel.Uint64}

// place puts the sides at random offsets in the first used bytes of the buffers.
func (o *sharedOp) place(rnd *random, used, size int) {
	t := o.Type.Size()
	longest := (o.N*t + o.gap) * size
	somewhere := func() span {
		return span{buf: rnd.below(sharedBuffers), off: rnd.below((used-longest)/t+1) * t}
	}
	o.src, o.dst = somewhere(), somewhere()
	if o.Verb == engine.Broadcast && !o.message {
		o.dst = o.src
	}
}
