package bench

import (
	"context"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/engine"
)

// An op is an operation that can be measured.
type op struct {
	name string
	verb engine.Verb // zero: messages
	// bus is the factor from algorithm bandwidth to bus bandwidth, as nccl-tests
	// define them.
	bus func(ranks float64) float64
}

// reduces reports whether the operation combines elements.
func (o *op) reduces() bool { return o.verb.Reduces() }

// divided reports whether the larger buffer has a share for each rank.
func (o *op) divided() bool { return o.verb.Info().Source.Divided || o.verb.Info().Dest.Divided }

func busFactorOne(float64) float64      { return 1 }
func busFactorOthers(n float64) float64 { return (n - 1) / n }
func busFactorTwice(n float64) float64  { return 2 * (n - 1) / n }

var ops = []op{
	{"allreduce", engine.AllReduce, busFactorTwice},
	{"broadcast", engine.Broadcast, busFactorOne},
	{"reduce", engine.Reduce, busFactorOne},
	{"allgather", engine.AllGather, busFactorOthers},
	{"reducescatter", engine.ReduceScatter, busFactorOthers},
	{"gather", engine.Gather, busFactorOthers},
	{"scatter", engine.Scatter, busFactorOthers},
	{"alltoall", engine.AllToAll, busFactorOthers},
	{"scan", engine.Scan, busFactorOne},
	{"exscan", engine.ExScan, busFactorOne},
	{"sendrecv", 0, busFactorOne},
	{"barrier", engine.Barrier, busFactorOne},
}

// OpNames lists the operations.
func OpNames() (names []string) {
	for _, o := range ops {
		names = append(names, o.name)
	}
	return names
}

func opNamed(name string) *op {
	for i := range ops {
		if ops[i].name == name {
			return &ops[i]
		}
	}
	return nil
}

// operands are one operation's buffers on one rank, and the memory behind them. A
// side that the rank does not have is nil.
type operands struct {
	dst, src *Memory
}

func (s operands) buffers() (dst, src tutti.Buffer) {
	if s.dst != nil {
		dst = s.dst.Buf
	}
	if s.src != nil {
		src = s.src.Buf
	}
	return dst, src
}

// root is the root of rooted operations.
const root = 0

// layout divides two buffers, each as long as the larger side, into an operation's
// sides on one rank. In place, the smaller side lies in the larger.
func (s *spec) layout(x, y *Memory, rank int, inPlace bool) operands {
	v := s.op.verb.Info()
	reads, writes := v.Source.Ranks.Has(rank, root), v.Dest.Ranks.Has(rank, root)
	if s.op.verb == 0 {
		reads, writes = true, true
	}
	inPlace = inPlace && reads && writes
	on := operands{x, y}
	switch {
	case v.InPlace:
		return operands{x, x}
	case v.Source.Divided == v.Dest.Divided:
		if inPlace && s.op.verb != 0 {
			on.src = x
		}
	case v.Dest.Divided:
		if on.src = y.slice(0, s.part); inPlace {
			on.src = x.slice(rank*s.part, s.part)
		}
	default:
		if on.dst = x.slice(0, s.part); inPlace {
			on.dst = y.slice(rank*s.part, s.part)
		}
	}
	if !reads {
		on.src = nil
	}
	if !writes {
		on.dst = nil
	}
	return on
}

// destroysInput reports whether an operation in place overwrites its source with
// other values, so that it cannot be repeated on the same values.
func (s *spec) destroysInput(inPlace bool) bool {
	v := s.op.verb.Info()
	return inPlace && (v.Reduces || v.Source.Divided && v.Dest.Divided)
}

// blocking returns the call that is measured.
func (s *spec) blocking(c *tutti.Comm, on operands) func(ctx context.Context) error {
	dst, src := on.buffers()
	red := reduceNamed(s.reduce)
	switch s.op.name {
	case "allreduce":
		if dst == src {
			return func(ctx context.Context) error { return c.AllReduce(ctx, dst, red) }
		}
		return func(ctx context.Context) error { return c.AllReduceTo(ctx, dst, src, red) }
	case "reduce":
		return func(ctx context.Context) error { return c.Reduce(ctx, dst, src, red, root) }
	case "broadcast":
		return func(ctx context.Context) error { return c.Broadcast(ctx, dst, root) }
	case "allgather":
		return func(ctx context.Context) error { return c.AllGather(ctx, dst, src) }
	case "reducescatter":
		return func(ctx context.Context) error { return c.ReduceScatter(ctx, dst, src, red) }
	case "gather":
		return func(ctx context.Context) error { return c.Gather(ctx, dst, src, root) }
	case "scatter":
		return func(ctx context.Context) error { return c.Scatter(ctx, dst, src, root) }
	case "alltoall":
		return func(ctx context.Context) error { return c.AllToAll(ctx, dst, src) }
	case "scan":
		return func(ctx context.Context) error { return c.Scan(ctx, dst, src, red) }
	case "exscan":
		return func(ctx context.Context) error { return c.ExScan(ctx, dst, src, red) }
	case "sendrecv":
		to, from := ring(c)
		return func(ctx context.Context) error { return c.SendRecv(ctx, to, src, from, dst, 0) }
	}
	return c.Barrier
}

// add adds the operation to a batch.
func (s *spec) add(c *tutti.Comm, b *tutti.Batch, on operands) {
	dst, src := on.buffers()
	red := reduceNamed(s.reduce)
	switch s.op.name {
	case "allreduce":
		b.AllReduceTo(dst, src, red)
	case "reduce":
		b.Reduce(dst, src, red, root)
	case "broadcast":
		b.Broadcast(dst, root)
	case "allgather":
		b.AllGather(dst, src)
	case "reducescatter":
		b.ReduceScatter(dst, src, red)
	case "gather":
		b.Gather(dst, src, root)
	case "scatter":
		b.Scatter(dst, src, root)
	case "alltoall":
		b.AllToAll(dst, src)
	case "scan":
		b.Scan(dst, src, red)
	case "exscan":
		b.ExScan(dst, src, red)
	case "sendrecv":
		to, from := ring(c)
		b.Send(to, src, 0).Recv(from, dst, 0)
	default:
		b.Barrier()
	}
}

// ring returns the ranks to which a rank sends and from which it receives.
func ring(c *tutti.Comm) (to, from int) {
	n := c.Size()
	return (c.Rank() + 1) % n, (c.Rank() + n - 1) % n
}

// iteration returns what one iteration does: one operation, or a batch.
func (s *spec) iteration(c *tutti.Comm, all []operands) func(ctx context.Context) error {
	if len(all) == 1 {
		return s.blocking(c, all[0])
	}
	return s.startAhead(c, all, 1)
}
