package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
)

// The number in the question "first" is a set of these flags. They say how operations are
// ordered with new streams.
const (
	withBarrier = 1 << iota // a Barrier instead of an AllReduce
	keepStreams             // the streams stay open
	withChurn               // another goroutine allocates and frees device memory meanwhile
	lastIsLate              // the last rank starts lateBy after the others
	allWays
)

const (
	streamsEach   = 64 // streams of each rank
	lateBy        = 2 * time.Second
	streamTimeout = 5 * time.Second // Config.Timeout
	streamGrace   = 2 * time.Second // how much later than Config.Timeout ErrTimeout may come
)

// A streamRank is one rank of a job that orders operations with streams.
type streamRank struct {
	comm *tutti.Comm
	dev  *cuda.Device
	x    *cuda.Slice[float32]
}

// serveStreams is the process of one streamRank. Its main goroutine answers the questions; a churn
// goroutine exists only during one.
func serveStreams(args []string) error {
	in := bufio.NewScanner(os.Stdin)
	comm, err := joinRanks(in, args, tutti.Config{Timeout: streamTimeout})
	if err != nil {
		return err
	}
	r := &streamRank{comm: comm}
	if r.dev, err = cuda.Open(0, nil); err != nil {
		return err
	}
	if r.x, err = cuda.Alloc[float32](r.dev, small); err != nil {
		return err
	}
	err = answerQuestions(in, map[string]func(int) ([]int64, error){"first": r.first, "absent": r.absentRank})
	return errors.Join(err, r.comm.Close(), r.x.Free(), r.dev.Close())
}

// first makes operations in the order of new streams the first ones of a new Comm. It returns the
// number of right results, or an error for a wrong one. With withChurn a second goroutine allocates
// device memory until cancel; first waits for it at the end, but not after an error, when the
// process exits.
func (r *streamRank) first(way int) ([]int64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := r.comm.Dup(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.x.Fill(float32(c.Rank() + 1)); err != nil {
		return nil, err
	}
	churned := make(chan error, 1)
	if way&withChurn != 0 {
		go func() { churned <- churn(ctx, r.dev) }()
	} else {
		churned <- nil
	}
	if way&lastIsLate != 0 && c.Rank() == c.Size()-1 {
		time.Sleep(lateBy)
	}
	var open []*cuda.Stream
	for i := range streamsEach {
		s, err := r.dev.NewStream()
		if err != nil {
			return nil, err
		}
		b := c.Batch().On(s)
		if way&withBarrier != 0 {
			b.Barrier()
		} else {
			b.AllReduce(gpu.Of(r.x), tutti.Max)
		}
		w, err := b.Start(ctx)
		if err == nil {
			err = errors.Join(w.Wait(ctx), s.Wait(ctx))
		}
		if err != nil {
			return nil, fmt.Errorf("stream %d: %w", i, err)
		}
		if way&keepStreams != 0 {
			open = append(open, s)
		} else if err := s.Close(); err != nil {
			return nil, err
		}
	}
	cancel()
	errs := []error{<-churned, c.Close()}
	for _, s := range open {
		errs = append(errs, s.Close())
	}
	want := float32(c.Size())
	if way&withBarrier != 0 {
		want = float32(c.Rank() + 1)
	}
	got := make([]float32, r.x.Len())
	errs = append(errs, r.x.CopyTo(got))
	for _, v := range got {
		if v != want {
			errs = append(errs, fmt.Errorf("the result is %v, not %v", v, want))
			break
		}
	}
	return []int64{streamsEach}, errors.Join(errs...)
}

// churn allocates and frees device memory until the context ends.
func churn(ctx context.Context, dev *cuda.Device) error {
	for ctx.Err() == nil {
		m, err := cuda.Alloc[byte](dev, 1<<20)
		if err != nil {
			return err
		}
		if err := m.Free(); err != nil {
			return err
		}
	}
	return nil
}

// absentRank orders an operation with a stream while the last rank never calls it, and another
// goroutine allocates. It returns the time until ErrTimeout; another result is an error. Then all
// ranks make a new Comm and use it.
func (r *streamRank) absentRank(int) ([]int64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := r.comm.Dup(ctx)
	if err != nil {
		return nil, err
	}
	s, err := r.dev.NewStream()
	if err != nil {
		return nil, err
	}
	churned := make(chan error, 1)
	go func() { churned <- churn(ctx, r.dev) }()
	begin := time.Now()
	if c.Rank() == c.Size()-1 {
		<-c.Done()
		err = c.Err()
	} else {
		_, err = c.Batch().On(s).AllReduce(gpu.Of(r.x), tutti.Sum).Start(ctx)
	}
	took := time.Since(begin)
	if !errors.Is(err, tutti.ErrTimeout) {
		return nil, fmt.Errorf("a rank never came, and this one got: %w", err)
	}
	if err := errors.Join(s.Wait(ctx), c.Close()); err != nil {
		return nil, err
	}
	cancel()
	next, err := r.comm.Dup(context.Background())
	if err != nil {
		return nil, err
	}
	return []int64{took.Nanoseconds()}, errors.Join(<-churned, s.Close(),
		next.AllReduce(context.Background(), gpu.Of(r.x), tutti.Max), next.Close())
}

// mpsConnections is the number of device connections that the MPS server has for all processes. Each
// process reserves CUDA_DEVICE_MAX_CONNECTIONS of them.
const mpsConnections = 64

// streams checks that operations in the order of a stream complete, whatever other driver
// calls the process makes.
func (s *shortRun) streams(ctx context.Context) error {
	for _, ranks := range s.streamRanks {
		for _, connections := range s.connections {
			if err := s.streamJob(ctx, ranks, connections); err != nil {
				return err
			}
		}
	}
	return nil
}

// streamJob runs all ways of "first", and "absent" if there are several ranks, in one job, and
// prints a row for each. The job is killed in any case. A rank that fails or hangs is an error.
func (s *shortRun) streamJob(ctx context.Context, ranks, connections int) error {
	env := append([]string{fmt.Sprintf("CUDA_DEVICE_MAX_CONNECTIONS=%d", connections)}, s.env...)
	// Under MPS the last ranks of a larger job may find no connections left. It runs without MPS.
	if ranks*connections <= mpsConnections {
		env = append(env, s.server.env...)
	}
	j, err := startJob(ctx, "streams", ranks, env, s.self, "streams")
	if err != nil {
		return err
	}
	defer j.kill(5 * time.Second)
	what := fmt.Sprintf("%d ranks, CUDA_DEVICE_MAX_CONNECTIONS=%d: ", ranks, connections)
	done, ways := 0, 0
	begin := time.Now()
	for way := range allWays {
		if way&lastIsLate != 0 && (ranks == 1 || way&keepStreams != 0 || way&withChurn == 0) {
			continue // a single rank cannot be late; a late rank costs lateBy, so it is tried only with churn and closed streams
		}
		all, err := j.askAll(ctx, fmt.Sprintf("first %d", way))
		if err != nil {
			return fmt.Errorf("%sway %#b: %w", what, way, err)
		}
		ways++
		for _, n := range all {
			done += int(n[0])
		}
	}
	s.say(what+"new streams that order the first operations of a Comm", done == ways*ranks*streamsEach,
		"%d of %d in %d ways, %.1f s", done, ways*ranks*streamsEach, ways, time.Since(begin).Seconds())
	if ranks == 1 {
		return nil
	}
	all, err := j.askAll(ctx, "absent 0")
	if err != nil {
		return fmt.Errorf("%sa rank that never comes: %w", what, err)
	}
	longest := time.Duration(0)
	for _, n := range all {
		longest = max(longest, time.Duration(n[0]))
	}
	s.say(what+"a rank that never comes", longest <= streamTimeout+streamGrace,
		"ErrTimeout after %.2f s at most, Timeout %v; a new Comm works", longest.Seconds(), streamTimeout)
	return nil
}
