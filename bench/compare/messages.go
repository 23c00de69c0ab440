package main

import (
	"context"
	"slices"

	"github.com/tutti-go/tutti"
)

// Messages are measured between the ranks of a pair, r and r^1. All pairs run at the
// same time. bench/peers/mpi.c measures in the same way and has copies of the constants.

const (
	windowMessages = 64       // messages outstanding in rate
	windowSpacing  = 16       // elements from the start of one of these messages to the next, in src
	smallMessage   = 4 << 10  // bytes
	maxRateSize    = 64 << 20 // bytes; the number of a window's elements is an int in mpi.c
	smallGroup     = 16       // exchanges in one iteration, up to smallMessage bytes: reading the clock costs too much
	messageTag     = 100
	ackTag         = 101
)

var messageOps = []string{"sendrecv", "pingpong", "rate"}

func isMessage(op string) bool { return slices.Contains(messageOps, op) }

// groupOf returns how many exchanges of messages are timed as one iteration.
func groupOf(bytes int) int {
	if bytes <= smallMessage {
		return smallGroup
	}
	return 1
}

// windowSizes returns the elements of src and dst for a window of messages of n elements. Each message has
// its own part of dst, as no two Recvs of a Batch may write the same memory. In src the messages overlap, but
// begin at different elements, so that the receiver can tell them apart.
func windowSizes(n int) (src, dst int) {
	return n + (windowMessages-1)*windowSpacing, n * windowMessages
}

func (b *bench[T]) peer() int { return b.comm.Rank() ^ 1 }

// sends reports whether this rank sends first, or in rate, is the only sender.
func (b *bench[T]) sends() bool { return b.comm.Rank()%2 == 0 }

// messages returns by how much the time of an iteration is divided.
func (b *bench[T]) messages() int {
	switch b.op {
	case "sendrecv":
		return b.group
	case "pingpong":
		return 2 * b.group
	case "rate":
		return windowMessages
	}
	return 1
}

// recv receives a message of the pair's other rank.
func (b *bench[T]) recv(ctx context.Context, buf tutti.Buffer, tag int) error {
	_, err := b.comm.Recv(ctx, b.peer(), buf, tag)
	return err
}

// sendRecv returns an iteration of sendrecv: both ranks of a pair send to each other at the same time.
func (b *bench[T]) sendRecv(src, dst tutti.Buffer) func(ctx context.Context) error {
	peer := b.peer()
	return func(ctx context.Context) error {
		for range b.group {
			if err := b.comm.SendRecv(ctx, peer, src, peer, dst, messageTag); err != nil {
				return err
			}
		}
		return nil
	}
}

// pingPong returns an iteration of pingpong: the odd rank answers each message with another one.
func (b *bench[T]) pingPong(src, dst tutti.Buffer) func(ctx context.Context) error {
	send := func(ctx context.Context) error { return b.comm.Send(ctx, b.peer(), src, messageTag) }
	recv := func(ctx context.Context) error { return b.recv(ctx, dst, messageTag) }
	first, second := recv, send
	if b.sends() {
		first, second = send, recv
	}
	return func(ctx context.Context) error {
		for range b.group {
			if err := first(ctx); err != nil {
				return err
			}
			if err := second(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// window returns an iteration of rate: the even rank sends a window of messages, which are outstanding
// together, and the odd rank acknowledges them when it has received all.
func (b *bench[T]) window(src, dst tutti.Buffer) func(ctx context.Context) error {
	batch, ack := b.comm.Batch(), tutti.Of(make([]int32, 1))
	for j := range windowMessages {
		if b.sends() {
			batch.Send(b.peer(), src.Slice(j*windowSpacing, j*windowSpacing+b.n), messageTag)
		} else {
			batch.Recv(b.peer(), dst.Slice(j*b.n, (j+1)*b.n), messageTag)
		}
	}
	return func(ctx context.Context) error {
		err := batch.Run(ctx)
		switch {
		case err != nil:
			return err
		case b.sends():
			return b.recv(ctx, ack, ackTag)
		default:
			return b.comm.Send(ctx, b.peer(), ack, ackTag)
		}
	}
}

// divided returns the sample of one of n parts of each iteration.
func (s sample) divided(n int) sample {
	f := float64(n)
	s.p50, s.p99, s.p999, s.min, s.perSecond = s.p50/f, s.p99/f, s.p999/f, s.min/f, s.perSecond*f
	return s
}

// combinePairs returns the sample of all pairs, each measured by its even rank: the mean of the times, and
// the sum of the rates. In rate the times are divided by the number of pairs, so that a time is the inverse of
// the messages per second of all pairs.
func combinePairs(op string, ranks []sample) sample {
	pairs := float64(len(ranks) / 2)
	weight := 1 / pairs
	if op == "rate" {
		weight /= pairs
	}
	all := sample{iters: ranks[0].iters}
	for r := 0; r < len(ranks); r += 2 {
		s := ranks[r]
		all.p50 += s.p50 * weight
		all.p99 += s.p99 * weight
		all.p999 += s.p999 * weight
		all.min += s.min * weight
		all.perSecond += s.perSecond
	}
	return all
}
