package sim

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// send sends bytes with a tag to a rank.
func send(ctx context.Context, e engine.Engine, to, tag int, text string) error {
	b := []byte(text)
	m := engine.Message{Send: true, Peer: to, Tag: tag, Mem: bytesMem(b)}
	e.Post(&m)
	return e.Finish(ctx, &m)
}

// receive receives at most room bytes with a tag, and returns them with their sender.
func receive(ctx context.Context, e engine.Engine, from, tag, room int) (string, error) {
	b := make([]byte, room)
	m := engine.Message{Peer: from, Tag: tag, Mem: bytesMem(b), Flexible: true}
	e.Post(&m)
	if err := e.Finish(ctx, &m); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d: %s", m.From, b[:m.Len]), nil
}

func bytesMem(b []byte) engine.Mem {
	return engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(b)), N: len(b), Type: kernel.Uint8}
}

// expect receives a message and returns an error if it is another one.
func expect(ctx context.Context, e engine.Engine, from, tag int, want string) error {
	got, err := receive(ctx, e, from, tag, 20)
	if err == nil && got != want {
		err = fmt.Errorf("received %q, want %q", got, want)
	}
	return err
}

// TestAnyRank receives shorter messages from any rank in the order of their arrival.
func TestAnyRank(t *testing.T) {
	res := must(t, Options{Seed: 1, Ranks: 4}, func(ctx context.Context, s *Rank) error {
		if r := s.Rank(); r != 0 {
			for i := range 3 {
				if err := s.Sleep(ctx, time.Duration(125*r+7*r*r)*time.Millisecond); err != nil {
					return err
				}
				if err := send(ctx, s, 0, 1, fmt.Sprint("message ", i)); err != nil {
					return err
				}
			}
			return nil
		}
		var all error
		for _, want := range []string{
			"1: message 0", "1: message 1", "2: message 0", "1: message 2", "3: message 0", "2: message 1", "2: message 2",
			"3: message 1", "3: message 2",
		} {
			// Messages that arrive while this rank sleeps wait.
			all = errors.Join(all, expect(ctx, s, engine.AnyRank, 1, want), s.Sleep(ctx, time.Second/50))
		}
		return all
	})
	if err := errors.Join(res.Errs...); err != nil {
		t.Error(err)
	}
}

// TestUnreceived ends receives without a message: by their context, and because their memory is too
// short. The message stays first, and the group is healthy.
func TestUnreceived(t *testing.T) {
	for _, peer := range []int{1, engine.AnyRank} {
		res := must(t, Options{Seed: 1, Ranks: 2}, func(ctx context.Context, s *Rank) error {
			if s.Rank() == 1 {
				if err := s.Sleep(ctx, time.Second); err != nil {
					return err
				}
				return errors.Join(send(ctx, s, 0, 1, "first message"), send(ctx, s, 0, 1, "second message"))
			}
			short, cancel := s.WithTimeout(ctx, time.Second/2)
			defer cancel()
			_, err := receive(short, s, peer, 1, 20)
			if !errors.As(err, new(*engine.Unreceived)) || !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("a receive whose context has ended: %w", err)
			}
			_, err = receive(ctx, s, peer, 1, 12)
			if !errors.As(err, new(*engine.Unreceived)) || !errors.Is(err, engine.ErrInvalid) {
				return fmt.Errorf("a receive that is too short: %w", err)
			}
			return errors.Join(expect(ctx, s, peer, 1, "1: first message"), expect(ctx, s, peer, 1, "1: second message"),
				healthy(s))
		})
		if err := errors.Join(res.Errs...); err != nil {
			t.Errorf("from %d: %v", peer, err)
		}
	}
}

// healthy returns why the group of s has failed, or nil.
func healthy(s *Rank) error {
	if f := s.Failure(); f != nil {
		return f
	}
	return nil
}

// TestAnyRankLeft receives from any rank while the others leave. The receive fails when the last one
// has left.
func TestAnyRankLeft(t *testing.T) {
	res := must(t, Options{Seed: 1, Ranks: 3}, func(ctx context.Context, s *Rank) error {
		if r := s.Rank(); r != 0 {
			return s.Sleep(ctx, time.Duration(r)*time.Second)
		}
		_, err := receive(ctx, s, engine.AnyRank, 1, 10)
		if !errors.Is(err, engine.ErrRankLost) || s.Elapsed() < 2*time.Second {
			return fmt.Errorf("after %v: %w", s.Elapsed(), err)
		}
		return nil
	})
	if err := errors.Join(res.Errs...); err != nil {
		t.Error(err)
	}
}

// TestWaitCycle lets ranks send to each other in a cycle, and another rank wait for one of them. All
// get ErrTimeout soon after the timeout. A rank that waits for a living peer does not.
func TestWaitCycle(t *testing.T) {
	const timeout = 10 * time.Second
	for ranks := 2; ranks <= 9; ranks++ {
		var hash uint64
		for range 2 {
			res := must(t, Options{Seed: uint64(ranks), Ranks: ranks, Timeout: timeout}, func(ctx context.Context, s *Rank) error {
				if s.Rank() == 0 && ranks > 2 {
					// Longer than the timeout, without a cycle.
					if err := s.Sleep(ctx, 3*timeout); err != nil {
						return err
					}
				}
				err := send(ctx, s, (s.Rank()+1)%ranks, 1, "text")
				if !errors.Is(err, engine.ErrTimeout) || s.Elapsed() > 6*timeout {
					return fmt.Errorf("after %v: %w", s.Elapsed(), err)
				}
				return nil
			})
			if err := errors.Join(res.Errs...); err != nil {
				t.Errorf("%d ranks: %v", ranks, err)
			}
			if hash != 0 && res.Hash != hash {
				t.Errorf("%d ranks: two runs differ", ranks)
			}
			hash = res.Hash
		}
	}
}
