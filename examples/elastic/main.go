// Elastic adds up the squares of the first numbers, a hundred per step. It continues
// when ranks die:
//
//	go run ./cmd/tutti run --elastic 2:4 -- go run ./examples/elastic
//
// Kill any of its processes while it runs. The others continue without it, tutti run
// starts another in its place, and the others admit it. On several hosts a whole host
// may be lost; run the same tutti run command to replace it. The final sum is exact.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tutti-go/tutti"
)

// perStep is how many numbers a step adds, for any number of ranks.
const perStep = 100

func main() {
	steps := flag.Int("steps", 500, "how many steps to do")
	pause := flag.Duration("pause", 20*time.Millisecond, "how long to rest after each")
	hostTimeout := flag.Duration("host-timeout", 0, "how long a host may not answer before it is lost; 0: the default")
	flag.Parse()
	enough := make(chan os.Signal, 1)
	signal.Notify(enough, syscall.SIGUSR1)
	w := &worker{steps: *steps, pause: *pause, hostTimeout: *hostTimeout, interrupted: enough}
	if err := w.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A worker is one rank.
type worker struct {
	c           *tutti.Comm
	steps       int
	pause       time.Duration
	interrupted <-chan os.Signal // a signal on it makes all ranks stop after the step

	hostTimeout time.Duration // for Config.HostTimeout

	step, sum int // progress: completed steps and their sum
	last      int // step after which the worker ends; 0: not known yet
	stop      int // 1: this rank was asked to end
}

// run works until all steps are done, on one Comm after another. It calls Shrink after every error
// for which CanShrink is true; any other error ends the worker without Close. One goroutine uses the worker.
func (w *worker) run(ctx context.Context) error {
	var err error
	if w.c, err = tutti.Join(ctx, tutti.Config{HostTimeout: w.hostTimeout}); err != nil {
		return err
	}
	for {
		if err = w.work(ctx); err == nil {
			fmt.Printf("the sum of %d squares is %d\n", w.step*perStep, w.sum)
			_ = w.c.Close() // its error would be a rank that was lost after the last step
			return nil
		}
		// The first rank that detects a loss calls Shrink, which ends the
		// operations of the others. CanShrink is true for all of them.
		if !tutti.CanShrink(err) {
			return err
		}
		if w.c, _, err = w.c.Shrink(ctx); err != nil {
			return err
		}
	}
}

// work does steps, and admits new processes. After an error w.step and w.sum are those of the last
// completed step.
func (w *worker) work(ctx context.Context) error {
	if err := w.synchronize(ctx); err != nil {
		return err
	}
	for w.last == 0 || w.step < w.last {
		if err := w.add(ctx); err != nil {
			return err
		}
		time.Sleep(w.pause)
		// All ranks call Grow in the same steps.
		if w.step%5 != 0 {
			continue
		}
		c, err := w.c.Grow(ctx, 0)
		if err != nil {
			return err
		}
		if c != w.c {
			w.c = c
			if err := w.synchronize(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// synchronize brings all ranks of a new Comm to the most advanced state. New ranks
// have no state, and of two survivors only one may have the last step's result.
// That result is complete, so it counts. All numbers only grow.
func (w *worker) synchronize(ctx context.Context) error {
	x := []int{w.step, w.sum, w.last}
	if err := w.c.AllReduce(ctx, tutti.Of(x), tutti.Max); err != nil {
		return err
	}
	w.step, w.sum, w.last = x[0], x[1], x[2]
	fmt.Printf("process %d is rank %d of %d from step %d on\n", os.Getpid(), w.c.Rank(), w.c.Size(), w.step)
	return nil
}

// add runs one step: the ranks divide its numbers among themselves. After an error the step does
// not count. A rank with a pending signal makes this the last step of all ranks.
func (w *worker) add(ctx context.Context) error {
	select {
	case <-w.interrupted:
		w.stop = 1
	default:
	}
	first := w.step * perStep
	x := []int{0, w.stop}
	for i := w.c.Rank(); i < perStep; i += w.c.Size() {
		x[0] += (first + i) * (first + i)
	}
	if err := w.c.AllReduce(ctx, tutti.Of(x), tutti.Sum); err != nil {
		return err
	}
	w.step, w.sum = w.step+1, w.sum+x[0]
	if w.step == w.steps || x[1] > 0 {
		w.last = w.step
	}
	return nil
}
