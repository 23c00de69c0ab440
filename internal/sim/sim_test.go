package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/race"
)

// allReduce sums n elements over all ranks. It returns an error if the operation
// fails or a sum is wrong.
func allReduce(ctx context.Context, e engine.Engine, seq uint64, n int) error {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(i%7 + e.Rank())
	}
	m := engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(s)), N: n, Type: kernel.Float32}
	if err := e.Run(ctx, seq, []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: m, Dst: m}}); err != nil {
		return err
	}
	size := e.Size()
	for i, v := range s {
		if want := float32(i%7*size + size*(size-1)/2); v != want {
			return fmt.Errorf("element %d is %v, want %v", i, v, want)
		}
	}
	return nil
}

// must runs a simulation and fails the test if the run fails.
func must(t testing.TB, opt Options, body func(ctx context.Context, s *Rank) error) *Result {
	t.Helper()
	res, err := Run(opt, body)
	if err != nil {
		t.Fatalf("seed %d: %v", opt.Seed, err)
	}
	return res
}

// TestReplay checks that two runs of a seed are the same, and runs of other seeds
// differ.
func TestReplay(t *testing.T) {
	hashes := make(map[uint64]uint64)
	for seed := range uint64(10) {
		opt := Options{Seed: seed, Ranks: 7, Network: network.Options{Segment: 64}}
		if seed%2 == 1 {
			opt.Faults = []Fault{{Kind: Crash, Rank: 3, Message: 9}}
		}
		var first *Result
		for range 3 {
			ranks := enginetest.NewRankFactory()
			res := must(t, opt, func(ctx context.Context, s *Rank) error {
				r := ranks.Rank(s)
				for v := engine.AllReduce; v <= engine.Barrier; v++ {
					op := enginetest.Op{Verb: v, ReduceOp: engine.Sum, Type: kernel.Int32, N: 40, Root: int(v), Seed: seed}
					if err := r.Do(ctx, op); err != nil {
						return err
					}
				}
				return nil
			})
			if first == nil {
				first = res
			}
			if res.Hash != first.Hash || res.Events != first.Events || res.Elapsed != first.Elapsed {
				t.Fatalf("seed %d: %+v, and then %+v", seed, first, res)
			}
			if seed%2 == 0 && errors.Join(res.Errs...) != nil {
				t.Fatal(errors.Join(res.Errs...))
			}
		}
		if other, same := hashes[first.Hash]; same {
			t.Errorf("seeds %d and %d have the same log", seed, other)
		}
		hashes[first.Hash] = seed
	}
}

// TestThousand loses one of a thousand ranks during an AllReduce, with three
// algorithms. Every other rank must get an ErrRankLost that names only that rank.
func TestThousand(t *testing.T) {
	ranks := 1000
	if testing.Short() || race.Enabled {
		ranks = 200
	}
	for _, way := range []network.Algorithm{0, network.Doubling, network.Halving} {
		began := time.Now()
		opt := Options{
			Seed: 1, Ranks: ranks, Network: network.Options{Algorithms: network.Algorithms{AllReduce: way}},
			Faults: []Fault{{Kind: Crash, Rank: 77, Message: 5}},
		}
		res := must(t, opt, func(ctx context.Context, s *Rank) error {
			for seq := uint64(1); ; seq++ {
				if err := allReduce(ctx, s, seq, 1000); err != nil {
					return err
				}
			}
		})
		if !res.Fired[0] {
			t.Fatal("the rank did not crash")
		}
		for r, err := range res.Errs {
			f := (*engine.Failure)(nil)
			if r == 77 {
				continue
			}
			if !errors.As(err, &f) || f.Kind != engine.ErrRankLost || !slices.Equal(f.Lost, []int{77}) {
				t.Fatalf("rank %d: %v", r, err)
			}
		}
		t.Logf("%v: %d ranks, %d events, %v virtual, %v real", way, ranks, res.Events, res.Elapsed, time.Since(began))
	}
}

// TestHang checks that ranks that wait for each other are detected, and that no
// goroutine of theirs remains.
func TestHang(t *testing.T) {
	_, err := Run(Options{Ranks: 3, Timeout: -1}, func(ctx context.Context, s *Rank) error {
		if s.Rank() == 1 {
			return s.Sleep(ctx, 24*time.Hour)
		}
		return allReduce(ctx, s, 1, 10)
	})
	hang := (*HangError)(nil)
	if !errors.As(err, &hang) || !slices.Equal(hang.Ranks, []int{0, 1, 2}) {
		t.Fatal(err)
	}
}

func TestPanic(t *testing.T) {
	_, err := Run(Options{Ranks: 3}, func(ctx context.Context, s *Rank) error {
		if s.Rank() == 1 {
			panic("on purpose")
		}
		return allReduce(ctx, s, 1, 10)
	})
	if err == nil || !strings.Contains(err.Error(), "rank 1 panicked: on purpose") {
		t.Fatal(err)
	}
}

// TestContexts checks that contexts end in virtual time.
func TestContexts(t *testing.T) {
	res := must(t, Options{Ranks: 2}, func(ctx context.Context, s *Rank) error {
		if s.Rank() == 1 {
			return s.Sleep(ctx, time.Minute)
		}
		ctx, cancel := s.WithTimeout(ctx, time.Second)
		defer cancel()
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		return allReduce(ctx, s, 1, 10)
	})
	if f := (*engine.Failure)(nil); !errors.As(res.Errs[0], &f) || !errors.Is(f.Err, context.DeadlineExceeded) {
		t.Errorf("rank 0: %v", res.Errs[0])
	}
	if res.Errs[1] != nil || res.Elapsed != time.Minute {
		t.Errorf("rank 1: %v after %v", res.Errs[1], res.Elapsed)
	}
}
