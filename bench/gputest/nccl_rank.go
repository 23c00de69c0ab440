package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/envvar"
	"github.com/tutti-go/tutti/nccl"
)

// The Go counterpart of the C driver; see peers.NCCL for the protocol.

// BURST and SMALL of bench/peers/nccl.c are copies.
const (
	burst = 64  // operations that are enqueued and timed together
	small = 256 // elements of a small operation
)

// A server is one rank that answers.
type server struct {
	dev             *cuda.Device
	comm            *nccl.Comm
	stream, compute *cuda.Stream
	before, after   *cuda.Event // order stream after compute, and compute after stream
	memory          *cuda.Slice[float32]
	small           nccl.Buffer // the first small elements of memory
}

// serve is one rank that answers the questions of the C driver's protocol, in a single goroutine.
// It returns at the end of its input or at an unknown question. After an error the process exits
// without closing anything.
func serve(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: gputest rank RANK RANKS")
	}
	rank, e1 := strconv.Atoi(args[0])
	ranks, e2 := strconv.Atoi(args[1])
	if err := errors.Join(e1, e2); err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	s, err := newServer(in, rank, ranks)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for in.Scan() {
		var times, bytes int
		var took []int64
		var err error
		if n, _ := fmt.Sscanf(in.Text(), "burst %d", &times); n == 1 {
			took, err = s.bursts(times, s.reduce)
		} else if n, _ := fmt.Sscanf(in.Text(), "ordered %d", &times); n == 1 {
			took, err = s.bursts(times, s.ordered)
		} else if n, _ := fmt.Sscanf(in.Text(), "whole %d %d", &bytes, &times); n == 2 {
			took, err = s.whole(bytes, times)
		} else {
			break
		}
		if err != nil {
			return err
		}
		fmt.Println("ns", strings.Trim(fmt.Sprint(took), "[]"))
	}
	return errors.Join(s.comm.Close(), s.memory.Free(), s.before.Close(), s.after.Close(), s.compute.Close(), s.stream.Close(), s.dev.Close())
}

// newServer connects a rank and checks one sum, which all ranks must take part in. After an error
// the process exits, so that nothing is freed.
func newServer(in *bufio.Scanner, rank, ranks int) (*server, error) {
	s := &server{}
	lib, err := nccl.Load("")
	if err != nil {
		return nil, err
	}
	if s.dev, err = cuda.Open(0, nil); err != nil {
		return nil, err
	}
	if s.stream, err = s.dev.NewStream(); err != nil {
		return nil, err
	}
	if s.compute, err = s.dev.NewStream(); err != nil {
		return nil, err
	}
	if s.before, err = s.dev.NewEvent(); err != nil {
		return nil, err
	}
	if s.after, err = s.dev.NewEvent(); err != nil {
		return nil, err
	}
	capacity, err := envvar.Int(os.Getenv, "TUTTI_BENCH_BYTES", 256<<20)
	if err != nil {
		return nil, err
	}
	if s.memory, err = cuda.Alloc[float32](s.dev, capacity/4); err != nil {
		return nil, err
	}
	part, err := s.memory.Slice(0, small)
	if err != nil {
		return nil, err
	}
	s.small = nccl.Of(part)
	id, err := exchangeID(lib, in, rank)
	if err != nil {
		return nil, err
	}
	if s.comm, err = lib.Init(context.Background(), s.dev, id, rank, ranks, nccl.Config{}); err != nil {
		return nil, err
	}
	got := make([]float32, small)
	if err := errors.Join(part.Fill(1), s.reduce(), s.stream.Synchronize(), part.CopyTo(got), s.memory.Fill(0)); err != nil {
		return nil, err
	}
	for i, x := range got {
		if x != float32(ranks) {
			return nil, fmt.Errorf("element %d of a sum is %v", i, x)
		}
	}
	return s, nil
}

// exchangeID returns the unique id of the communicator. Rank 0 makes and prints it, and the other
// ranks read it from their input.
func exchangeID(lib *nccl.Library, in *bufio.Scanner, rank int) (nccl.UniqueID, error) {
	if rank == 0 {
		id, err := lib.NewID()
		if err == nil {
			fmt.Println("id", hex.EncodeToString(id[:]))
		}
		return id, err
	}
	if !in.Scan() {
		return nccl.UniqueID{}, errors.New("no id")
	}
	bytes, err := hex.DecodeString(strings.TrimPrefix(in.Text(), "id "))
	if err != nil || len(bytes) != len(nccl.UniqueID{}) {
		return nccl.UniqueID{}, fmt.Errorf("a bad id: %w", err)
	}
	return nccl.UniqueID(bytes), nil
}

func (s *server) reduce() error { return s.comm.AllReduce(s.small, s.small, nccl.Sum, s.stream) }

// ordered enqueues a reduction after the work now in the compute stream. Later work in the
// compute stream waits for it.
func (s *server) ordered() error {
	if err := s.before.Record(s.compute); err != nil {
		return err
	}
	if err := s.stream.WaitEvent(s.before); err != nil {
		return err
	}
	if err := s.reduce(); err != nil {
		return err
	}
	if err := s.after.Record(s.stream); err != nil {
		return err
	}
	return s.compute.WaitEvent(s.after)
}

// bursts returns the host's time to enqueue one operation, in nanoseconds, for each burst. The wait
// for completion after a burst is not timed.
func (s *server) bursts(times int, op func() error) ([]int64, error) {
	took := make([]int64, times)
	for t := range took {
		begin := time.Now()
		for range burst {
			if err := op(); err != nil {
				return nil, err
			}
		}
		took[t] = time.Since(begin).Nanoseconds() / burst
		if err := errors.Join(s.stream.Synchronize(), s.compute.Synchronize()); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// whole returns the time of an AllReduce of a number of bytes with the wait for it, in nanoseconds.
func (s *server) whole(bytes, times int) ([]int64, error) {
	part, err := s.memory.Slice(0, bytes/4)
	if err != nil {
		return nil, err
	}
	b := nccl.Of(part)
	took := make([]int64, times)
	for t := range took {
		begin := time.Now()
		if err := errors.Join(s.comm.AllReduce(b, b, nccl.Sum, s.stream), s.stream.Synchronize()); err != nil {
			return nil, err
		}
		took[t] = time.Since(begin).Nanoseconds()
	}
	return took, nil
}
