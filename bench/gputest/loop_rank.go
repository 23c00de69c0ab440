package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/envvar"
	"github.com/tutti-go/tutti/internal/gpuprobe"
)

// bindEnv makes a rank use only its part of the cores. NCCL has a thread for each rank, so
// nothing is divided if there are fewer than two cores for each rank.
const bindEnv = "TUTTI_BENCH_BIND"

func bindRank(rank, ranks int) error {
	all := affinity.Allowed()
	bind, err := envvar.Bool(os.Getenv, bindEnv)
	if err != nil || !bind || len(all) < 2*ranks {
		return err
	}
	own := affinity.Share(all, ranks, rank)
	runtime.GOMAXPROCS(len(own)) // as in a process that is bound before its start
	return affinity.Bind(own)
}

// serveLoop is one rank of a job that measures with the loop of tutti bench. It reads questions and
// prints answers in the form of the C driver bench/peers/nccl.c, so that both can be compared. A
// question is "loop", an operation, bytes, a count, and the number in flight. It returns at the end
// of its input, or with the first error, after which the process exits.
func serveLoop(args []string) (err error) {
	most, err := envvar.Int(os.Getenv, "TUTTI_BENCH_BYTES", 0)
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	comm, err := joinRanks(in, args, tutti.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	gpu, err := gpuprobe.Open(0, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gpu.Close()) }()
	var sides [2]*bench.Memory
	for i := range sides {
		if sides[i], err = gpu.Alloc(tutti.Float32Type, most/4); err != nil {
			return err
		}
		clear(sides[i].Bytes)
		if err := sides[i].Push(len(sides[i].Bytes)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sides[i].Free()) }()
	}
	loop := bench.NewLoop(comm, sides[0], sides[1])
	fmt.Println("ready")
	for in.Scan() {
		var op string
		var bytes, times, ahead int
		if _, err := fmt.Sscanf(in.Text(), "loop %s %d %d %d", &op, &bytes, &times, &ahead); err != nil {
			return fmt.Errorf("what is %q: %w", in.Text(), err)
		}
		took, err := loop.Time(context.Background(), op, bytes, times, ahead)
		if err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		fmt.Println("ns", strings.Trim(fmt.Sprint(took), "[]"))
	}
	return nil
}
