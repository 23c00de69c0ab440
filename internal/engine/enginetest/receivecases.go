package enginetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// receiveCases are flexible receives: from any rank, of shorter messages, and receives that end
// without a message.
func receiveCases() []Case {
	var cases []Case
	for _, c := range []struct {
		name string
		body func(context.Context, *Rank) error
	}{
		{"any rank", anyRank},
		{"any and named", anyAndNamed},
		{"shorter", shorterMessages},
		{"too long", tooLongMessage},
		{"cancelled", cancelledReceive},
		{"cancelled while sent", cancelledWhileSent},
	} {
		for _, ranks := range []int{2, 4} {
			cases = append(cases, Case{Name: fmt.Sprintf("receive/%s/ranks=%d", c.name, ranks), Ranks: ranks, Body: c.body})
		}
	}
	return cases
}

// send sends values to a rank and waits until they are taken.
func (r *Rank) send(ctx context.Context, to, tag int, values ...int64) error {
	m := engine.Message{Send: true, Peer: to, Tag: tag, Mem: int64s(values)}
	r.Post(&m)
	return r.Finish(ctx, &m)
}

// receive receives at most len(to) values into to.
func (r *Rank) receive(ctx context.Context, from, tag int, to []int64) (*engine.Message, error) {
	m := &engine.Message{Flexible: true, Peer: from, Tag: tag, Mem: int64s(to)}
	r.Post(m)
	return m, r.Finish(ctx, m)
}

// anyRank gathers messages of all other ranks on rank 0. The messages of one rank must arrive in order.
func anyRank(ctx context.Context, r *Rank) error {
	const each = 100
	if r.Rank() != 0 {
		for i := range int64(each) {
			if err := r.send(ctx, 0, 3, i); err != nil {
				return err
			}
		}
		return nil
	}
	next := make([]int64, r.Size())
	to := make([]int64, 1)
	for range each * (r.Size() - 1) {
		m, err := r.receive(ctx, engine.AnyRank, 3, to)
		if err != nil {
			return err
		}
		if m.From < 1 || m.From >= r.Size() || m.Len != 1 || to[0] != next[m.From] {
			return fmt.Errorf("received message %d of %d elements from rank %d, want message %d", to[0], m.Len, m.From, next[m.From])
		}
		next[m.From]++
	}
	return nil
}

// anyAndNamed posts a receive from rank 1 and then receives from any rank. In each round rank 1 sends
// two messages and every other rank sends one. The named receive gets the first one of rank 1.
func anyAndNamed(ctx context.Context, r *Rank) error {
	for i := range 30 {
		if r.Rank() != 0 {
			for k := range 2 {
				if k == 1 && r.Rank() != 1 {
					break
				}
				if err := r.send(ctx, 0, 1, int64(i), int64(k)); err != nil {
					return err
				}
			}
		} else if err := r.receiveRound(ctx, i); err != nil {
			return err
		}
		if err := r.Try(ctx, Op{Verb: engine.Barrier}); err != nil {
			return err
		}
	}
	return nil
}

// receiveRound receives the messages of one round of anyAndNamed.
func (r *Rank) receiveRound(ctx context.Context, round int) error {
	got := make([][2]int64, r.Size())
	list := make([]engine.Message, r.Size())
	for k := range list {
		peer := engine.AnyRank
		if k == 0 {
			peer = 1
		}
		list[k] = engine.Message{Flexible: true, Peer: peer, Tag: 1, Mem: int64s(got[k][:])}
		r.Post(&list[k])
	}
	var first error
	count := make([]int64, r.Size())
	for k := range list {
		err := r.Finish(ctx, &list[k])
		if from := list[k].From; err == nil {
			if k == 0 && from != 1 || got[k] != [2]int64{int64(round), count[from]} {
				err = fmt.Errorf("receive %d of round %d got %v from rank %d", k, round, got[k], from)
			}
			count[from]++
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// shorterMessages receives messages of many lengths into one large buffer, and into memory that is
// made when the length is known.
func shorterMessages(ctx context.Context, r *Rank) error {
	const most = 40_000
	peer := r.Rank() ^ 1
	lengths := []int{0, 1, 2, 7, 64, 500, 1000, 4095, 8193, most}
	values := make([]int64, most)
	for i := range values {
		values[i] = int64(i) + 1
	}
	sends := make([]engine.Message, 2*len(lengths))
	for i := range sends {
		sends[i] = engine.Message{Send: true, Peer: peer, Tag: 2, Mem: int64s(values[:lengths[i%len(lengths)]])}
		r.Post(&sends[i])
	}
	check := func(m *engine.Message, n int, got []int64) error {
		if m.Len != n || m.From != peer {
			return fmt.Errorf("received %d elements from rank %d, want %d from %d", m.Len, m.From, n, peer)
		}
		for i, v := range got {
			if want := int64(i) + 1; i < n && v != want || i >= n && v != -1 {
				return fmt.Errorf("element %d of %d is %d", i, n, v)
			}
		}
		return nil
	}
	err := func() error {
		to := make([]int64, most+1)
		for _, n := range lengths {
			for i := range to {
				to[i] = -1
			}
			m, err := r.receive(ctx, peer, 2, to)
			if err == nil {
				err = check(m, n, to)
			}
			if err != nil {
				return err
			}
		}
		for _, n := range lengths {
			var got []int64
			m := &engine.Message{
				Flexible: true, Peer: peer, Tag: 2, Mem: engine.Mem{Type: kernel.Int64}, Limit: most,
				Room: func(n int) engine.Mem { got = make([]int64, n); return int64s(got) },
			}
			r.Post(m)
			if err := r.Finish(ctx, m); err != nil {
				return err
			}
			if err := check(m, n, got); err != nil || len(got) != n {
				return fmt.Errorf("%d elements: %w", len(got), err)
			}
		}
		return nil
	}()
	if err != nil {
		r.FailGroups(err)
	}
	for i := range sends {
		err = errors.Join(err, r.Finish(ctx, &sends[i]))
	}
	return err
}

// tooLongMessage receives messages into buffers that are too short, and then into larger ones. The
// group stays healthy, and no message is lost or overtaken.
func tooLongMessage(ctx context.Context, r *Rank) error {
	peer := r.Rank() ^ 1
	if r.Rank() > peer {
		for i := range int64(20) {
			if err := r.send(ctx, peer, 5, i, i, i); err != nil {
				return err
			}
		}
		return r.Try(ctx, Op{Verb: engine.Barrier})
	}
	to := make([]int64, 3)
	for i := range int64(20) {
		from := peer
		if i%2 == 0 {
			from = engine.AnyRank
		}
		_, err := r.receive(ctx, from, 5, to[:i%3])
		if !errors.Is(err, engine.ErrInvalid) || !errors.As(err, new(*engine.Unreceived)) {
			return fmt.Errorf("a buffer of %d: %w", i%3, err)
		}
		if _, err := r.receive(ctx, from, 5, to); err != nil || to[0] != i || to[2] != i {
			return fmt.Errorf("received %v, want message %d: %w", to, i, err)
		}
	}
	return r.Try(ctx, Op{Verb: engine.Barrier})
}

// cancelledReceive ends the context of receives that no message matches. The group stays healthy, and
// a later receive gets the message.
func cancelledReceive(ctx context.Context, r *Rank) error {
	peer := r.Rank() ^ 1
	to := make([]int64, 1)
	for _, from := range []int{peer, engine.AnyRank} {
		for _, in := range []context.Context{lateCancel(ctx), lateDeadline(ctx)} {
			_, err := r.receive(in, from, 6, to)
			if !errors.As(err, new(*engine.Unreceived)) || in.Err() == nil || !errors.Is(err, in.Err()) || errors.Is(err, engine.ErrTimeout) || errors.Is(err, engine.ErrAborted) {
				return fmt.Errorf("a receive whose context ended: %w", err)
			}
		}
	}
	if err := r.Try(ctx, Op{Verb: engine.Barrier}); err != nil {
		return err
	}
	return r.exchange(ctx, false, Transfer{From: 0, To: 1, Tag: 6, Type: kernel.Int64, N: 9}, Transfer{From: 1, To: 0, Tag: 6, Type: kernel.Int64, N: 9})
}

// cancelledWhileSent cancels receives while messages are being sent. No message is lost, doubled or
// overtaken.
func cancelledWhileSent(ctx context.Context, r *Rank) error {
	const messages = 300
	peer := r.Rank() ^ 1
	length := func(i int) int { return 1 + i*i%7000 }
	values := make([]int64, 7000)
	if r.Rank() > peer {
		for i := range messages {
			values[0] = int64(i)
			if err := r.send(ctx, peer, 7, values[:length(i)]...); err != nil {
				return err
			}
		}
		return r.Try(ctx, Op{Verb: engine.Barrier})
	}
	for i, tries := 0, 0; i < messages; tries++ {
		from := peer
		if tries%2 == 0 {
			from = engine.AnyRank
		}
		own, cancel := context.WithCancel(ctx)
		if tries%4 != 3 {
			go cancel()
		}
		m, err := r.receive(own, from, 7, values)
		cancel()
		switch {
		case err == nil && (m.Len != length(i) || values[0] != int64(i)):
			return fmt.Errorf("received message %d of %d elements, want message %d of %d", values[0], m.Len, i, length(i))
		case err == nil:
			i++
		case !errors.As(err, new(*engine.Unreceived)) || !errors.Is(err, context.Canceled):
			return err
		}
	}
	return r.Try(ctx, Op{Verb: engine.Barrier})
}
