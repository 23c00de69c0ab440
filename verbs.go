package tutti

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// AllReduce combines the buffers of all ranks element by element and stores the
// result in each buffer.
func (c *Comm) AllReduce(ctx context.Context, buf Buffer, op Op) error {
	var call engine.Call
	putAllReduce(&call, buf, buf, op)
	return c.verb(ctx, &call)
}

// AllReduceTo is AllReduce from src into dst. It does not change src.
func (c *Comm) AllReduceTo(ctx context.Context, dst, src Buffer, op Op) error {
	var call engine.Call
	putAllReduce(&call, dst, src, op)
	return c.verb(ctx, &call)
}

// Reduce combines the sources of all ranks into the root's destination. The root
// may pass its source as dst. The other ranks pass the zero Buffer for dst.
func (c *Comm) Reduce(ctx context.Context, dst, src Buffer, op Op, root int) error {
	call := reduce(dst, src, op, root)
	return c.verb(ctx, &call)
}

// Broadcast copies the root's buffer into the buffers of all other ranks.
func (c *Comm) Broadcast(ctx context.Context, buf Buffer, root int) error {
	call := broadcast(buf, root)
	return c.verb(ctx, &call)
}

// AllGather copies the sources of all ranks into every destination, in rank order.
// The source may be this rank's share of the destination.
func (c *Comm) AllGather(ctx context.Context, dst, src Buffer) error {
	call := allGather(dst, src)
	return c.verb(ctx, &call)
}

// AllGatherV is AllGather of sources of different lengths. dst[r] has the length
// of rank r's source.
func (c *Comm) AllGatherV(ctx context.Context, dst []Buffer, src Buffer) error {
	call := allGatherV(dst, src)
	return c.verb(ctx, &call)
}

// ReduceScatter combines the sources of all ranks and stores the r-th of equal
// shares of the result in rank r's destination. The destination may be that share
// of the source.
func (c *Comm) ReduceScatter(ctx context.Context, dst, src Buffer, op Op) error {
	call := reduceScatter(dst, src, op)
	return c.verb(ctx, &call)
}

// ReduceScatterV is ReduceScatter of shares of different lengths. src[r] has the
// length of rank r's destination.
func (c *Comm) ReduceScatterV(ctx context.Context, dst Buffer, src []Buffer, op Op) error {
	call := reduceScatterV(dst, src, op)
	return c.verb(ctx, &call)
}

// Gather copies the sources of all ranks into the root's destination, in rank order.
// The other ranks pass the zero Buffer for dst.
func (c *Comm) Gather(ctx context.Context, dst, src Buffer, root int) error {
	call := gather(dst, src, root)
	return c.verb(ctx, &call)
}

// GatherV is Gather of sources of different lengths. On the root, dst[r] has the
// length of rank r's source. The other ranks pass nil for dst.
func (c *Comm) GatherV(ctx context.Context, dst []Buffer, src Buffer, root int) error {
	call := gatherV(dst, src, root)
	return c.verb(ctx, &call)
}

// Scatter copies the r-th of equal shares of the root's source into rank r's
// destination. The other ranks pass the zero Buffer for src.
func (c *Comm) Scatter(ctx context.Context, dst, src Buffer, root int) error {
	call := scatter(dst, src, root)
	return c.verb(ctx, &call)
}

// ScatterV is Scatter of shares of different lengths. On the root, src[r] has the
// length of rank r's destination. The other ranks pass nil for src.
func (c *Comm) ScatterV(ctx context.Context, dst Buffer, src []Buffer, root int) error {
	call := scatterV(dst, src, root)
	return c.verb(ctx, &call)
}

// AllToAll copies the r-th of equal shares of rank s's source into the s-th share
// of rank r's destination, for all r and s. The two may be the same buffer.
func (c *Comm) AllToAll(ctx context.Context, dst, src Buffer) error {
	call := allToAll(dst, src)
	return c.verb(ctx, &call)
}

// AllToAllV is AllToAll of shares of different lengths. dst[s] has the length of
// the share that rank s passes for this rank.
func (c *Comm) AllToAllV(ctx context.Context, dst, src []Buffer) error {
	call := allToAllV(dst, src)
	return c.verb(ctx, &call)
}

// Scan combines the sources of the ranks up to this one, element by element, and stores
// the result in dst. On rank 0 the result is its source. dst and src may be the same
// buffer. Avg returns ErrInvalid, because the ranks combine different numbers of sources.
//
// The sources are combined in rank order. Within a host, and everywhere with
// Config.Reproducible, they are combined one after the other from rank 0 on. Otherwise
// sources of neighboring ranks may be combined first, on which the last bits of
// floating-point results depend. Which ones follows from the number of elements, the ranks
// and their hosts alone, so that a repeated call has the same bits.
func (c *Comm) Scan(ctx context.Context, dst, src Buffer, op Op) error {
	call := scan(engine.Scan, dst, src, op)
	return c.verb(ctx, &call)
}

// ExScan is Scan without this rank's source: it combines the sources of the ranks before
// this one. Rank 0 has no result. Its dst is left unchanged and may be the zero Buffer.
func (c *Comm) ExScan(ctx context.Context, dst, src Buffer, op Op) error {
	call := scan(engine.ExScan, dst, src, op)
	return c.verb(ctx, &call)
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier(ctx context.Context) error {
	return c.verb(ctx, &engine.Call{Verb: engine.Barrier})
}

func (c *Comm) verb(ctx context.Context, call *engine.Call) error {
	_, err := c.do(ctx, call)
	return err
}

// putAllReduce sets the fields of a zero call. A function that returns the call would copy it just
// after its fields were stored, and the copy would stall until those stores complete.
func putAllReduce(call *engine.Call, dst, src Buffer, op Op) {
	call.Verb, call.ReduceOp, call.Scale = engine.AllReduce, op.red, op.scale
	call.Dst, call.Src = dst.m, src.m
}

func reduce(dst, src Buffer, op Op, root int) engine.Call {
	return engine.Call{Verb: engine.Reduce, Dst: dst.m, Src: src.m, ReduceOp: op.red, Scale: op.scale, Root: root}
}

func broadcast(buf Buffer, root int) engine.Call {
	return engine.Call{Verb: engine.Broadcast, Dst: buf.m, Src: buf.m, Root: root}
}

func allGather(dst, src Buffer) engine.Call {
	return engine.Call{Verb: engine.AllGather, Dst: dst.m, Src: src.m}
}

func allGatherV(dst []Buffer, src Buffer) engine.Call {
	return engine.Call{Verb: engine.AllGather, Uneven: true, DstParts: mems(dst), Src: src.m}
}

func reduceScatter(dst, src Buffer, op Op) engine.Call {
	return engine.Call{Verb: engine.ReduceScatter, Dst: dst.m, Src: src.m, ReduceOp: op.red, Scale: op.scale}
}

func reduceScatterV(dst Buffer, src []Buffer, op Op) engine.Call {
	return engine.Call{
		Verb: engine.ReduceScatter, Uneven: true, Dst: dst.m, SrcParts: mems(src), ReduceOp: op.red, Scale: op.scale,
	}
}

func gather(dst, src Buffer, root int) engine.Call {
	return engine.Call{Verb: engine.Gather, Dst: dst.m, Src: src.m, Root: root}
}

func gatherV(dst []Buffer, src Buffer, root int) engine.Call {
	return engine.Call{Verb: engine.Gather, Uneven: true, DstParts: mems(dst), Src: src.m, Root: root}
}

func scatter(dst, src Buffer, root int) engine.Call {
	return engine.Call{Verb: engine.Scatter, Dst: dst.m, Src: src.m, Root: root}
}

func scatterV(dst Buffer, src []Buffer, root int) engine.Call {
	return engine.Call{Verb: engine.Scatter, Uneven: true, Dst: dst.m, SrcParts: mems(src), Root: root}
}

func allToAll(dst, src Buffer) engine.Call {
	return engine.Call{Verb: engine.AllToAll, Dst: dst.m, Src: src.m}
}

func allToAllV(dst, src []Buffer) engine.Call {
	return engine.Call{Verb: engine.AllToAll, Uneven: true, DstParts: mems(dst), SrcParts: mems(src)}
}

func scan(verb engine.Verb, dst, src Buffer, op Op) engine.Call {
	return engine.Call{Verb: verb, Dst: dst.m, Src: src.m, ReduceOp: op.red, Scale: op.scale}
}
