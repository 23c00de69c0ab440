package tuttitest

import (
	"context"
	"errors"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/clock"
)

// A sumProgram is the elastic program of the guide: it adds the squares of the first
// numbers, continues after losses, and admits newcomers. Its counts need no lock,
// because the simulator runs one rank at a time.
type sumProgram struct {
	steps int
	pause time.Duration
	by    int // how many newcomers Grow waits for; zero: Grow admits the newcomers that wait

	admitted int            // newcomers that have joined
	finished int            // processes with the sum
	grows    map[string]int // by generation that Grow made: its size
	shrinks  map[string]int // by generation that Shrink made: its size
}

const (
	perStep   = 20 // numbers
	growEvery = 3  // steps
)

// sumOf returns the sum after a number of steps.
func sumOf(steps int) (sum int) {
	for i := range steps * perStep {
		sum += i * i
	}
	return sum
}

func (l *sumProgram) begin() {
	l.admitted, l.finished, l.grows, l.shrinks = 0, 0, make(map[string]int), make(map[string]int)
}

// A sumWorker is one process of the program.
type sumWorker struct {
	*sumProgram
	c         *tutti.Comm
	step, sum int // progress
	grown     int // 1: Grow has admitted newcomers
}

// main is the function of a process.
func (l *sumProgram) main(ctx context.Context, c *tutti.Comm) error {
	w := &sumWorker{sumProgram: l, c: c}
	if c.Info().Late {
		l.admitted++
		w.grown = 1
	}
	for {
		err := w.work(ctx)
		if err == nil {
			l.finished++
			_ = w.c.Close() // its error would be a rank that was lost after the last step
			return nil
		}
		if wrong := (errWrong{}); errors.As(err, &wrong) {
			return err
		}
		next, _, err := w.c.Shrink(ctx)
		if errors.Is(err, tutti.ErrAborted) { // the connection to the store broke
			next, _, err = w.c.Shrink(ctx)
		}
		if err != nil {
			return err
		}
		w.c = next
		l.shrinks[next.Stats().Comm] = next.Size()
	}
}

// work does the remaining steps. It returns the error of an operation, or an errWrong.
func (w *sumWorker) work(ctx context.Context) error {
	if err := w.synchronize(ctx); err != nil {
		return err
	}
	for w.step < w.steps {
		if err := w.add(ctx); err != nil {
			return err
		}
		if err := clock.Sleep(ctx, w.pause); err != nil {
			return err
		}
		if w.step%growEvery != 0 || w.by > 0 && w.grown > 0 {
			continue
		}
		c, err := w.c.Grow(ctx, w.by)
		if err != nil {
			return err
		}
		if c != w.c {
			w.c, w.grown = c, 1
			w.grows[c.Stats().Comm] = c.Size()
			if err := w.synchronize(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// synchronize brings all ranks of a new Comm to the most advanced state.
func (w *sumWorker) synchronize(ctx context.Context) error {
	x := []int{w.step, w.sum, w.grown}
	if err := w.c.AllReduce(ctx, tutti.Of(x), tutti.Max); err != nil {
		return err
	}
	w.step, w.sum, w.grown = x[0], x[1], x[2]
	return w.check()
}

// add runs one step.
func (w *sumWorker) add(ctx context.Context) error {
	x := []int{0}
	for i := w.c.Rank(); i < perStep; i += w.c.Size() {
		x[0] += (w.step*perStep + i) * (w.step*perStep + i)
	}
	if err := w.c.AllReduce(ctx, tutti.Of(x), tutti.Sum); err != nil {
		return err
	}
	w.step, w.sum = w.step+1, w.sum+x[0]
	return w.check()
}

func (w *sumWorker) check() error {
	if want := sumOf(w.step); w.sum != want {
		return wrongf("%s: the sum after %d steps is %d, want %d", w.c.Stats().Comm, w.step, w.sum, want)
	}
	return nil
}
