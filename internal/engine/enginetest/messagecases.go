package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// messageCases are messages between two ranks, and among all ranks.
func messageCases(opt Options) []Case {
	var cases []Case
	add := func(name string, ranks int, body func(context.Context, *Rank) error) {
		cases = append(cases, Case{Name: fmt.Sprintf("message/%s/ranks=%d", name, ranks), Ranks: ranks, Body: body})
	}
	for _, ranks := range opt.ranks() {
		add("sizes", ranks, opt.messageSizes)
		add("many", ranks, manyMessages)
		add("goroutines", ranks, messageGoroutines)
		add("self", ranks, selfMessages)
		add("beside collectives", ranks, opt.messagesDuringCollectives)
	}
	add("tags", 2, tagOrder)
	add("again", 2, reuseMessages)
	return cases
}

// messageSizes sends every type and size around the ring, in both directions at
// once.
func (o Options) messageSizes(ctx context.Context, r *Rank) error {
	for _, t := range o.types() {
		for _, n := range o.sizes(t) {
			var list []Transfer
			for from := range r.Size() {
				next := Transfer{From: from, To: from + 1, Tag: 1, Type: t, N: n, Seed: uint64(n)}
				back := Transfer{From: from, To: from + r.Size() - 1, Tag: 2, Type: t, N: n, Seed: uint64(n) + 1}
				list = append(list, next, back)
			}
			if err := r.exchange(ctx, n%2 == 0, list...); err != nil {
				return err
			}
		}
	}
	return nil
}

// manyMessages has hundreds of messages outstanding between every two ranks, with a
// few tags, and finishes them in reverse order.
func manyMessages(ctx context.Context, r *Rank) error {
	var list []Transfer
	for i := range 150 {
		for from := range r.Size() {
			t := Transfer{From: from, To: from + i, Tag: i % 3, Type: kernel.Int32, N: i % 50}
			t.Seed = mix(uint64(from), uint64(i))
			list = append(list, t)
		}
	}
	return r.exchange(ctx, true, list...)
}

// messageGoroutines finishes every message in a goroutine of its own.
func messageGoroutines(ctx context.Context, r *Rank) error {
	var list []Transfer
	for i := range 20 {
		for from := range r.Size() {
			t := Transfer{From: from, To: from + i, Tag: i % 2, Type: kernel.Uint8, N: i * 500, Seed: uint64(i)}
			list = append(list, t)
		}
	}
	r.arena.reset()
	sides := r.post(list)
	errs := make([]error, len(sides))
	var wg sync.WaitGroup
	for i, s := range sides {
		wg.Go(func() { errs[i] = r.finish(ctx, s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// selfMessages are messages from a rank to itself.
func selfMessages(ctx context.Context, r *Rank) error {
	var list []Transfer
	for i := range 10 {
		self := Transfer{From: r.Rank(), To: r.Rank(), Tag: i % 2, Type: kernel.Float64, N: 100 * i, Seed: uint64(i)}
		list = append(list, self)
	}
	return r.exchange(ctx, false, list...)
}

// messagesDuringCollectives sends messages while the same group runs collectives.
func (o Options) messagesDuringCollectives(ctx context.Context, r *Rank) error {
	// The goroutine needs a Rank of its own, because a Rank's memory is for one
	// goroutine.
	side := newRank(r.Engine, r.cache, r.all)
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 20 && err == nil; i++ {
			t := Transfer{From: i, To: i + 1, Tag: i, Type: kernel.Int64, N: 37 * i, Seed: uint64(i)}
			err = side.exchange(ctx, false, t)
		}
		if err != nil {
			side.FailGroups(err)
		}
		done <- err
	}()
	rnd := random(7)
	var err error
	for i := 0; i < 20 && err == nil; i++ {
		op := Options{Light: true, Numbers: o.Numbers, NCCL: o.NCCL}.randomOp(&rnd, func(r *random) int { return r.below(12 << 10) })
		err = r.Do(ctx, op)
	}
	if err != nil {
		r.FailGroups(err)
	}
	return errors.Join(err, <-done)
}

// tagOrder receives by tag in another order than the messages were sent. Within a
// tag the order is kept.
func tagOrder(ctx context.Context, r *Rank) error {
	const tags, each = 4, 5
	peer := 1 - r.Rank()
	value := func(rank, tag, i int) int64 { return int64(rank)<<32 | int64(tag)<<16 | int64(i) }
	sends, recvs := make([]engine.Message, tags*each), make([]engine.Message, tags*each)
	out, in := make([]int64, tags*each), make([]int64, tags*each)
	for k := range sends {
		tag, i := k%tags, k/tags
		out[k] = value(r.Rank(), tag, i)
		sends[k] = engine.Message{Send: true, Peer: peer, Tag: tag, Mem: int64s(out[k : k+1])}
		r.Post(&sends[k])
	}
	for k := range recvs {
		recvs[k] = engine.Message{Peer: peer, Tag: tags - 1 - k/each, Mem: int64s(in[k : k+1])}
		r.Post(&recvs[k])
	}
	for k := range recvs {
		if err := r.Finish(ctx, &recvs[len(recvs)-1-k]); err != nil {
			return err
		}
	}
	for k := range sends {
		if err := r.Finish(ctx, &sends[k]); err != nil {
			return err
		}
	}
	for k, got := range in {
		if want := value(peer, tags-1-k/each, k%each); got != want {
			return fmt.Errorf("rank %d: message %d with tag %d is %#x, want %#x",
				r.Rank(), k%each, tags-1-k/each, got, want)
		}
	}
	return nil
}

// reuseMessages uses two Messages repeatedly.
func reuseMessages(ctx context.Context, r *Rank) error {
	peer := 1 - r.Rank()
	out, in := make([]int64, 1), make([]int64, 1)
	send := engine.Message{Send: true, Peer: peer, Mem: int64s(out)}
	recv := engine.Message{Peer: peer, Mem: int64s(in)}
	for i := range int64(500) {
		out[0] = i
		r.Post(&recv)
		r.Post(&send)
		if err := errors.Join(r.Finish(ctx, &recv), r.Finish(ctx, &send)); err != nil {
			return err
		}
		if in[0] != i {
			return fmt.Errorf("rank %d: message %d holds %d", r.Rank(), i, in[0])
		}
	}
	return nil
}
