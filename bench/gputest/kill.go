package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// mortals is how many ranks a round has: all but one survive it.
const mortals = 3

// told is how long it may take until all know who is lost.
const told = 5 * time.Second

// kill kills a rank in each round. The others stay the same processes, and make a
// new Comm with a new process in the next round.
func (s *shortRun) kill(ctx context.Context) error {
	s.stopRanks()
	s.server.stop() // NVIDIA does not support killing its clients
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fresh := s.fresh(ctx)
	var survivors []*process
	defer func() {
		for _, p := range survivors {
			_ = p.stop(5 * time.Second)
		}
	}()
	for range mortals - 1 {
		p, err := fresh.take(ctx)
		if err != nil {
			return err
		}
		survivors = append(survivors, p)
	}
	done := 0
	var times []time.Duration
	result := func(ok bool, rest string) {
		s.say(fmt.Sprintf("a rank killed while %d others wait, without MPS", mortals-1), ok && done == s.kills,
			"%d of %d rounds: named within %s, closed, and a new Comm made; wanted %d%s", done, done, spread(times), s.kills, rest)
	}
	for done < s.kills && !soon(ctx) {
		p, err := fresh.take(ctx)
		if err != nil {
			return err
		}
		took, err := round(ctx, survivors, p, done%2)
		if err == nil && took > told {
			err = fmt.Errorf("it took %v", took)
		}
		if err != nil {
			result(false, "")
			return fmt.Errorf("round %d: %w", done, err)
		}
		done++
		times = append(times, took)
	}
	_, err := round(ctx, survivors, nil, nobody)
	rest := "; the survivors alone make and use one more"
	if err != nil {
		rest = ""
	}
	result(err == nil, rest)
	return err
}

// spread is the largest of some times, and how they are distributed.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "no time"
	}
	slices.Sort(times)
	at := func(p int) float64 {
		return times[min(len(times)-1, len(times)*p/100)].Seconds() * 1000
	}
	return fmt.Sprintf("%.0f ms (p50 %.0f, p99 %.0f)", at(100), at(50), at(99))
}

// round lets ranks meet and kills the victim, if there is one, when all are waiting.
// It returns how long it took until the last of the others was told.
func round(ctx context.Context, survivors []*process, victim *process, mode int) (time.Duration, error) {
	addr, err := freeAddr()
	if err != nil {
		return 0, err
	}
	ranks := append([]*process{}, survivors...)
	place := -1
	if victim != nil {
		defer func() { _ = victim.stop(0) }()
		place = rand.IntN(mortals)
		ranks = append(ranks[:place:place], append([]*process{victim}, ranks[place:]...)...)
	}
	for r, p := range ranks {
		if _, err := fmt.Fprintf(p.in, "round %s %d %d %d %d\n", addr, r, len(ranks), mode, place); err != nil {
			return 0, err
		}
	}
	if err := expect(ctx, ranks, "ready"); err != nil {
		return 0, err
	}
	var took time.Duration
	if victim != nil {
		// Time for them to come where they wait. Earlier is no harm.
		time.Sleep(50 * time.Millisecond)
		begin := time.Now()
		if err := victim.cmd.Process.Kill(); err != nil {
			return 0, err
		}
		if err := expect(ctx, survivors, "ns 0"); err != nil {
			return 0, err
		}
		took = time.Since(begin)
	}
	return took, expect(ctx, survivors, "ns 1")
}

// expect reads a line of each.
func expect(ctx context.Context, ranks []*process, want string) error {
	for r, p := range ranks {
		text, err := p.line(ctx)
		if err != nil {
			return fmt.Errorf("process %d: %w", r, err)
		}
		if !strings.HasPrefix(text, want) {
			return fmt.Errorf("process %d says %q, not %q", r, text, want)
		}
	}
	return nil
}

// A nursery starts processes ahead of their use: that takes longer than a round.
type nursery chan born

type born struct {
	p   *process
	err error
}

// fresh starts processes until ctx ends, a few at a time.
func (s *shortRun) fresh(ctx context.Context) nursery {
	const atOnce = 3
	n := make(nursery)
	for k := range atOnce {
		go func() {
			for i := 0; ctx.Err() == nil; i++ {
				// Each is a host of its own to NCCL.
				env := append(s.env[:len(s.env):len(s.env)], fmt.Sprintf("NCCL_HOSTID=tutti-mortal-%d-%d", k, i))
				p, err := spawn(ctx, env, s.self, "mortal")
				if err == nil {
					if err = expect(ctx, []*process{p}, "ready"); err != nil {
						_ = p.stop(0)
					}
				}
				select {
				case n <- born{p, err}:
				case <-ctx.Done():
					if err == nil {
						_ = p.stop(0)
					}
				}
				if err != nil {
					return
				}
			}
		}()
	}
	return n
}

func (n nursery) take(ctx context.Context) (*process, error) {
	select {
	case b := <-n:
		return b.p, b.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
