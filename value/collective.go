package value

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/tutti-go/tutti"
)

// A collective is one rank's call of a collective of this package. Before data moves, the ranks
// exchange offers: the length of each rank's encoding and the fingerprint of its type. So all
// ranks come to the same decision.
type collective struct {
	ctx context.Context
	c   *tutti.Comm
	op  string
	t   reflect.Type
}

func newCollective[T any](ctx context.Context, c *tutti.Comm, op string) *collective {
	return &collective{ctx, c, "value." + op, reflect.TypeFor[T]()}
}

// An offer is the length of an encoding, or failed, and a fingerprint.
const (
	offerWords = 2
	failed     = math.MaxUint64
)

// offer exchanges offers and returns the lengths of the encodings of all ranks. prepare returns this
// rank's encoding. If prepare fails, panics or ends the goroutine, all ranks get an error.
func (x *collective) offer(prepare func() ([]byte, error)) (lengths []int, data []byte, err error) {
	returned := false
	defer func() {
		if !returned {
			_, _ = x.exchange(0, errNotReturned) // the panic continues
		}
	}()
	data, err = prepare()
	returned = true
	lengths, err = x.exchange(len(data), err)
	return lengths, data, err
}

// exchange exchanges the offers, of an encoding of length bytes or of the error of this rank.
func (x *collective) exchange(length int, own error) ([]int, error) {
	mine := []uint64{uint64(length), fingerprint(x.t)}
	if own != nil {
		mine[0] = failed
	}
	all := make([]uint64, offerWords*x.c.Size())
	if err := x.gather(tutti.Of(all), tutti.Of(mine)); err != nil {
		return nil, err
	}
	lengths := make([]int, x.c.Size())
	for r := range lengths {
		n, hash := all[offerWords*r], all[offerWords*r+1]
		switch {
		case n == failed || hash != all[1]:
			return nil, x.explain(all, own)
		case n > MaxBytes:
			return nil, fail(x.op, r, tutti.ErrInvalid, fmt.Sprintf("the encoding has %d bytes; the limit is %d", n, MaxBytes))
		}
		lengths[r] = int(n)
	}
	return lengths, nil
}

// gather is an AllGather with the name of the collective, so that another collective at this place
// is a mismatch.
func (x *collective) gather(dst, src tutti.Buffer) error {
	w, err := x.c.Batch().AllGather(dst, src).Named(x.op).Start(x.ctx)
	if err != nil {
		return err
	}
	return w.Wait(context.WithoutCancel(x.ctx)) // x.ctx ends the operation itself
}

// textBytes bounds the texts that ranks exchange.
const textBytes = 1024

// explain returns the error for offers of which one has failed or has another type. The ranks
// exchange their errors and the names of their types for it.
func (x *collective) explain(all []uint64, own error) error {
	text := typeName(x.t)
	if own != nil {
		text = own.Error()
	}
	mine := make([]byte, textBytes)
	copy(mine, text)
	texts := make([]byte, textBytes*x.c.Size())
	if err := x.gather(tutti.Of(texts), tutti.Of(mine)); err != nil {
		return err
	}
	textOf := func(r int) string {
		return strings.ToValidUTF8(string(bytes.TrimRight(texts[textBytes*r:textBytes*(r+1)], "\x00")), "")
	}
	for r := range x.c.Size() {
		switch {
		case all[offerWords*r] != failed:
		case r == x.c.Rank():
			return failOn(x.op, r, own)
		default:
			return fail(x.op, r, tutti.ErrInvalid, textOf(r))
		}
	}
	odd := 1
	for all[offerWords*odd+1] == all[1] {
		odd++
	}
	name, other := textOf(0), textOf(odd)
	if name == other {
		other = anotherType
	}
	return fail(x.op, odd, tutti.ErrMismatch, fmt.Sprintf("rank 0 passes %s, and rank %d passes %s; pass the same type on all ranks", name, odd, other))
}

// refuse returns the error for wrong arguments on this rank.
func (x *collective) refuse(format string, args ...any) error {
	return fail(x.op, x.c.Rank(), tutti.ErrInvalid, fmt.Sprintf(format, args...))
}

// Broadcast copies the root's value to all other ranks. On the root it does not change *v. On the
// others it replaces *v.
func Broadcast[T any](ctx context.Context, c *tutti.Comm, v *T, root int) error {
	x := newCollective[T](ctx, c, "Broadcast")
	switch {
	case v == nil:
		return x.refuse("the pointer to the value is nil")
	case root < 0 || root >= c.Size():
		return x.refuse("root %d is not one of the %d ranks", root, c.Size())
	}
	lengths, data, err := x.offer(func() ([]byte, error) {
		if c.Rank() != root {
			return nil, nil
		}
		return encode(nil, v, MaxBytes)
	})
	if err != nil {
		return err
	}
	if data, err = x.spread(data, lengths, root); err != nil || c.Rank() == root {
		return err
	}
	got, err := decode[T](data, root)
	if err != nil {
		return failOn(x.op, c.Rank(), err)
	}
	*v = got
	return nil
}

// spread returns the root's encoding on all ranks.
func (x *collective) spread(data []byte, lengths []int, root int) ([]byte, error) {
	if x.c.Rank() != root {
		data = make([]byte, lengths[root])
	}
	return data, x.c.Broadcast(x.ctx, tutti.Of(data), root)
}

// AllGather returns the values of all ranks, in rank order, on every rank. This rank's own value is
// a copy as well.
func AllGather[T any](ctx context.Context, c *tutti.Comm, v T) ([]T, error) {
	x := newCollective[T](ctx, c, "AllGather")
	lengths, data, err := x.offer(func() ([]byte, error) { return encode(nil, &v, MaxBytes) })
	if err != nil {
		return nil, err
	}
	flat := make([]byte, sum(lengths))
	if err := c.AllGatherV(ctx, tutti.Of(flat).Parts(nil, lengths...), tutti.Of(data)); err != nil {
		return nil, err
	}
	all, err := decodeAll[T](flat, lengths)
	if err != nil {
		return nil, failOn(x.op, c.Rank(), err)
	}
	return all, nil
}

// AllReduce combines the values of all ranks by op and returns the same result to all ranks.
//
// Rank 0 calls op, from the left: op(op(v0, v1), v2), where v1 is the value of rank 1. So op need
// not be associative or commutative. It may change its arguments and return one of them: they are
// copies of the ranks' values. If op panics, the panic continues on rank 0, and the other ranks get
// an error that matches tutti.ErrInvalid; the Comm stays healthy. A nil op is refused on its rank
// alone.
func AllReduce[T any](ctx context.Context, c *tutti.Comm, v T, op func(a, b T) T) (T, error) {
	var zero T
	x := newCollective[T](ctx, c, "AllReduce")
	if op == nil {
		return zero, x.refuse("the function is nil")
	}
	lengths, data, err := x.offer(func() ([]byte, error) { return encode(nil, &v, MaxBytes) })
	if err != nil {
		return zero, err
	}
	var flat []byte
	var parts []tutti.Buffer
	if c.Rank() == 0 {
		flat = make([]byte, sum(lengths))
		parts = tutti.Of(flat).Parts(nil, lengths...)
	}
	if err := c.GatherV(ctx, parts, tutti.Of(data), 0); err != nil {
		return zero, err
	}
	sizes, result, err := x.offer(func() ([]byte, error) {
		if c.Rank() != 0 {
			return nil, nil
		}
		return combine(flat, lengths, op)
	})
	if err != nil {
		return zero, err
	}
	if result, err = x.spread(result, sizes, 0); err != nil {
		return zero, err
	}
	got, err := decode[T](result, 0)
	if err != nil {
		return zero, failOn(x.op, c.Rank(), err)
	}
	return got, nil
}

// combine decodes the values of all ranks, combines them and returns the encoding of the result.
func combine[T any](flat []byte, lengths []int, op func(a, b T) T) ([]byte, error) {
	all, err := decodeAll[T](flat, lengths)
	if err != nil {
		return nil, err
	}
	result := all[0]
	for _, v := range all[1:] {
		result = op(result, v)
	}
	return encode(nil, &result, MaxBytes)
}

// decodeAll returns the values of encodings that follow each other in flat, by rank.
func decodeAll[T any](flat []byte, lengths []int) ([]T, error) {
	all := make([]T, len(lengths))
	for r, n := range lengths {
		v, err := decode[T](flat[:n], r)
		if err != nil {
			return nil, err
		}
		all[r], flat = v, flat[n:]
	}
	return all, nil
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}
