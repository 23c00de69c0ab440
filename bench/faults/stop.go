package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/tutti-go/tutti"
)

// opTime is the deadline of operations while ranks are stopped.
const opTime = 2 * time.Second

// stopRank runs operations with the deadline opTime until one fails, and reports that failure. It
// closes the Comm when its input has a line or ends.
func stopRank(c *tutti.Comm, in *bufio.Reader) error {
	x := make([]float32, 5000)
	for did := 0; ; did++ {
		if did == 20 {
			fmt.Println("ready")
		}
		ctx, cancel := context.WithTimeout(context.Background(), opTime)
		err := c.AllReduce(ctx, tutti.Of(x), tutti.Max)
		cancel()
		if err != nil {
			report(did, err)
			break
		}
	}
	_, _ = in.ReadString('\n')
	return c.Close()
}

// stopAll repeatedly stops a rank of 2 to 5. At the deadline the other ranks must
// name the missing rank. The stopped rank must get an error when it continues.
func stopAll(trials int, transport string, seed uint64, out io.Writer) error {
	var most, least time.Duration
	for i := range trials {
		t, err := stopOne(rand.New(rand.NewPCG(seed, uint64(i))), transport)
		if err != nil {
			return fmt.Errorf("trial %d: %w", i, err)
		}
		most = max(most, t)
		if least == 0 || t < least {
			least = t
		}
	}
	fmt.Fprintf(out, "stop, %s: %d trials, deadline %v; from the stop to the last other's error: %v to %v; the stopped rank got an error in each\n",
		transport, trials, opTime, least.Round(time.Millisecond), most.Round(time.Millisecond))
	return nil
}

// stopOne runs one trial and returns the time from the stop to the last other rank's error. It is
// an error if another rank does not get a timeout that names the stopped rank among the ranks that the
// operation waited for, or if the stopped rank gets no error after it continues.
func stopOne(rnd *rand.Rand, transport string) (time.Duration, error) {
	n := 2 + rnd.IntN(4)
	victim := rnd.IntN(n)
	j, err := start(spec{ranks: n, transport: transport, state: "stop"})
	if err != nil {
		return 0, err
	}
	defer j.end()
	if err := j.awaitAll("ready", append(j.others(victim), victim)); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := j.ranks[victim].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	ends, err := j.awaitEnds(j.others(victim))
	if err != nil {
		return 0, fmt.Errorf("rank %d of %d is stopped: %w", victim, n, err)
	}
	for r, e := range ends {
		if e.Kind != "timeout" || !e.namesAwaited(victim) {
			return 0, fmt.Errorf("rank %d of %d is stopped, and rank %d was told: %s", victim, n, r, e.Text)
		}
	}
	if err := j.ranks[victim].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return 0, err
	}
	own, err := j.awaitEnds([]int{victim})
	if err != nil {
		return 0, fmt.Errorf("rank %d was stopped and continued: %w", victim, err)
	}
	if own[victim].Kind == "none" {
		return 0, fmt.Errorf("rank %d was stopped and continued, and has no error", victim)
	}
	return lastEnd(ends, begin), nil
}
