package bench

import (
	"context"

	"github.com/tutti-go/tutti"
)

// An op is one collective.
type op struct {
	name    string
	reduces bool
	divided bool // the larger buffer has a share for each rank
	// waits says that no rank completes before all ranks have begun. Such
	// operations are timed back to back. Others would overlap and are timed one by
	// one.
	waits bool
	// bus is the factor from algorithm bandwidth to bus bandwidth.
	bus func(ranks float64) float64
}

func busFactorOne(float64) float64      { return 1 }
func busFactorOthers(n float64) float64 { return (n - 1) / n }
func busFactorTwice(n float64) float64  { return 2 * (n - 1) / n }

var ops = []op{
	{name: "allreduce", reduces: true, waits: true, bus: busFactorTwice},
	{name: "broadcast", bus: busFactorOne},
	{name: "reduce", reduces: true, bus: busFactorOne},
	{name: "allgather", divided: true, waits: true, bus: busFactorOthers},
	{name: "reducescatter", reduces: true, divided: true, waits: true, bus: busFactorOthers},
	{name: "gather", divided: true, bus: busFactorOthers},
	{name: "scatter", divided: true, bus: busFactorOthers},
	{name: "alltoall", divided: true, waits: true, bus: busFactorOthers},
	{name: "sendrecv", bus: busFactorOne},
	{name: "barrier", waits: true, bus: busFactorOne},
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
	own := func(m *Memory) *Memory { return m.slice(rank*s.part, s.part) }
	switch s.op.name {
	case "allreduce", "alltoall":
		if inPlace {
			return operands{x, x}
		}
		return operands{x, y}
	case "reduce":
		switch {
		case rank != root:
			return operands{nil, y}
		case inPlace:
			return operands{x, x}
		}
		return operands{x, y}
	case "broadcast":
		return operands{x, x}
	case "allgather":
		if inPlace {
			return operands{x, own(x)}
		}
		return operands{x, y.slice(0, s.part)}
	case "gather":
		switch {
		case rank != root:
			return operands{nil, y.slice(0, s.part)}
		case inPlace:
			return operands{x, own(x)}
		}
		return operands{x, y.slice(0, s.part)}
	case "reducescatter":
		if inPlace {
			return operands{own(y), y}
		}
		return operands{x.slice(0, s.part), y}
	case "scatter":
		switch {
		case rank != root:
			return operands{x.slice(0, s.part), nil}
		case inPlace:
			return operands{own(y), y}
		}
		return operands{x.slice(0, s.part), y}
	case "sendrecv":
		return operands{x, y}
	}
	return operands{}
}

// destroysInput reports whether an operation in place overwrites its source, so
// that it cannot be repeated on the same values.
func (s *spec) destroysInput(inPlace bool) bool {
	return inPlace && (s.op.reduces || s.op.name == "alltoall")
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
