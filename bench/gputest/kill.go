package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/freeaddr"
)

// roundRanks is the number of ranks in a round. One of them is killed.
const roundRanks = 3

// reportTimeout bounds the time from the kill until all survivors have reported the lost rank.
const reportTimeout = 5 * time.Second

// kill kills a rank in each round. The survivors stay the same processes. In the next round they
// make a new Comm together with a new process. The first round that fails ends it with an error. It
// ends all its processes, and leaves MPS stopped.
func (s *shortRun) kill(ctx context.Context) error {
	s.stopRanks()
	s.server.stop() // NVIDIA does not support killing its clients
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fresh := s.startPool(ctx)
	var survivors []*process
	defer func() {
		for _, p := range survivors {
			_ = p.stop(5 * time.Second)
		}
	}()
	for range roundRanks - 1 {
		p, err := fresh.take(ctx)
		if err != nil {
			return err
		}
		survivors = append(survivors, p)
	}
	done := 0
	var times []time.Duration
	result := func(ok bool, rest string) {
		s.say(fmt.Sprintf("a rank killed while %d others wait, without MPS", roundRanks-1), ok && done == s.kills,
			"%d of %d rounds: named within %s, closed, and a new Comm made; wanted %d%s", done, done, spread(times), s.kills, rest)
	}
	for done < s.kills && !almostOver(ctx) {
		p, err := fresh.take(ctx)
		if err != nil {
			return err
		}
		took, err := round(ctx, survivors, p, done%2)
		if err == nil && took > reportTimeout {
			err = fmt.Errorf("it took %v", took)
		}
		if err != nil {
			result(false, "")
			return fmt.Errorf("round %d: %w", done, err)
		}
		done++
		times = append(times, took)
	}
	_, err := round(ctx, survivors, nil, noVictim)
	rest := "; the survivors alone make and use one more"
	if err != nil {
		rest = ""
	}
	result(err == nil, rest)
	return err
}

// spread formats the maximum, the median and the 99th percentile of times.
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

// round makes a Comm of the processes, and kills the victim, if there is one, when all ranks wait.
// It returns the time until the last survivor has reported the loss. It returns an error if a
// survivor exits, reports something else, or does not answer before ctx ends.
func round(ctx context.Context, survivors []*process, victim *process, mode int) (time.Duration, error) {
	addr, err := freeaddr.Reserve()
	if err != nil {
		return 0, err
	}
	defer addr.Release()
	ranks := append([]*process{}, survivors...)
	place := -1
	if victim != nil {
		defer func() { _ = victim.stop(0) }()
		place = rand.IntN(roundRanks)
		ranks = append(ranks[:place:place], append([]*process{victim}, ranks[place:]...)...)
	}
	for r, p := range ranks {
		if _, err := fmt.Fprintf(p.in, "round %s %d %d %d %d\n", addr.Addr, r, len(ranks), mode, place); err != nil {
			return 0, err
		}
	}
	if err := expect(ctx, ranks, "ready"); err != nil {
		return 0, err
	}
	var took time.Duration
	if victim != nil {
		// Usually long enough for all ranks to wait in the operation; an earlier kill is valid too.
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

// expect reads a line from each process, which must begin with want.
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

// A procPool holds processes that were started ahead of their use, because starting one takes
// longer than a round.
type procPool chan procResult

// A procResult is a started process, or the reason why it could not be started.
type procResult struct {
	p   *process
	err error
}

// startPool starts processes in three goroutines, which hand them over through the returned
// channel. A goroutine ends with ctx, and then stops the process that it still has. It also ends
// after the first process that cannot be started, and hands over that error.
func (s *shortRun) startPool(ctx context.Context) procPool {
	const atOnce = 3
	n := make(procPool)
	for k := range atOnce {
		go func() {
			for i := 0; ctx.Err() == nil; i++ {
				// A NCCL_HOSTID of its own makes each process a host to NCCL.
				env := append(s.env[:len(s.env):len(s.env)], fmt.Sprintf("NCCL_HOSTID=tutti-victim-%d-%d", k, i))
				p, err := spawn(ctx, env, s.self, "victim")
				if err == nil {
					if err = expect(ctx, []*process{p}, "ready"); err != nil {
						_ = p.stop(0)
					}
				}
				select {
				case n <- procResult{p, err}:
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

func (n procPool) take(ctx context.Context) (*process, error) {
	select {
	case b := <-n:
		return b.p, b.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
