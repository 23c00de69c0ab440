package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
)

// An elasticRank adds up, on the device, the contributions of all ranks: in each step the
// step's number times a number of each rank. It continues when ranks are lost or added.
// Every contribution must count exactly once. One goroutine uses it; another fills commands.
type elasticRank struct {
	ctx      context.Context
	c        *tutti.Comm
	x        *cuda.Slice[int64]
	id       int64
	commands chan string // lines of the standard input
	synced   bool        // step and total are valid; false in a new rank until it has met the others

	step, total int64
	ops         uint64       // operations completed on c
	history     []checkpoint // the sums after the last few operations
	admitted    checkpoint   // when this rank was admitted
	generations []generation
}

// A checkpoint is the sum after an operation.
type checkpoint struct {
	op          uint64
	step, total int64
}

// A generation says which ranks contributed from step from on: numbers is the sum of their ids.
type generation struct{ from, numbers int64 }

// elastic is the process of an elasticRank. It prints "ready" when it can join, "ready RANK
// SIZE" whenever it has a new Comm, and finally "ns STEPS TOTAL". It reads the commands
// "grow N" and "stop".
func elastic() error {
	id, err := strconv.ParseInt(os.Getenv("GPUTEST_ID"), 10, 64)
	if err != nil {
		return err
	}
	dev, err := cuda.Open(0, nil)
	if err != nil {
		return err
	}
	m := &elasticRank{ctx: context.Background(), id: id, commands: make(chan string, 4)}
	if m.x, err = cuda.Alloc[int64](dev, 3); err != nil {
		return err
	}
	small, err := cuda.Alloc[float32](dev, 1)
	if err == nil {
		err = errors.Join(warm(small), small.Free())
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			m.commands <- in.Text()
		}
	}()
	if m.c, err = tutti.Join(m.ctx, tutti.Config{Device: gpu.Device(0), Timeout: time.Minute}); err != nil {
		return err
	}
	m.synced = !m.c.Info().Late
	for {
		err := m.work()
		if err == nil {
			break
		}
		if !tutti.CanShrink(err) {
			return err
		}
		if err := m.shrink(); err != nil {
			return err
		}
	}
	fmt.Println("ns", m.step, m.total)
	return errors.Join(m.c.Close(), m.x.Free(), dev.Close())
}

// work adds up, in one generation after another as the Comm grows, until a rank has read "stop". It
// returns the error of the first operation that fails; after a lost rank the caller shrinks and
// calls work again.
func (m *elasticRank) work() error {
	for {
		if err := m.exchangeState(); err != nil {
			return err
		}
		grow, err := m.steps()
		if err != nil || grow == 0 {
			return err
		}
		next, err := m.c.Grow(m.ctx, int(grow))
		if err != nil {
			return err
		}
		m.c = next
	}
}

// exchangeState exchanges the ranks' numbers, and passes the step and the sum to new ranks. It
// begins a new history and generation. Ranks with different sums are an error.
func (m *elasticRank) exchangeState() error {
	m.ops, m.history = 0, []checkpoint{{0, m.step, m.total}}
	mine := []int64{m.id + 1, m.step, m.total, 0}
	if m.synced {
		mine[3] = 1
	}
	all := make([]int64, 4*m.c.Size())
	if err := m.c.AllGather(m.ctx, tutti.Of(all), tutti.Of(mine)); err != nil {
		return err
	}
	m.ops++
	numbers, known := int64(0), []int64(nil)
	for r := range slices.Chunk(all, 4) {
		numbers += r[0]
		if r[3] == 1 {
			if known != nil && !slices.Equal(known, r[1:3]) {
				return fmt.Errorf("ranks have different sums: %v", all)
			}
			known = r[1:3]
		}
	}
	m.step, m.total = known[0], known[1]
	if !m.synced {
		m.synced, m.admitted = true, checkpoint{0, m.step, m.total}
	}
	m.history = append(m.history, checkpoint{m.ops, m.step, m.total})
	m.generations = append(m.generations, generation{m.step, numbers})
	fmt.Println("ready", m.c.Rank(), m.c.Size())
	return nil
}

// steps adds up until a rank has read a command, which the same AllReduce makes known to all ranks.
// It returns N of "grow N", or zero for "stop". After an error m has the state of the last
// completed step.
func (m *elasticRank) steps() (grow int64, err error) {
	for {
		x := []int64{(m.step + 1) * (m.id + 1), 0, 0}
		select {
		case ask := <-m.commands:
			if n, found := strings.CutPrefix(ask, "grow "); found {
				x[2], _ = strconv.ParseInt(n, 10, 64)
			} else {
				x[1] = 1
			}
		default:
		}
		if err := m.x.CopyFrom(x); err != nil {
			return 0, err
		}
		if err := m.c.AllReduce(m.ctx, gpu.Of(m.x), tutti.Sum); err != nil {
			return 0, err
		}
		if err := m.x.CopyTo(x); err != nil {
			return 0, err
		}
		m.ops++
		m.step++
		m.total += x[0]
		m.history = append(m.history, checkpoint{m.ops, m.step, m.total})
		if len(m.history) > 8 {
			m.history = slices.Delete(m.history, 0, 4)
		}
		if x[1] > 0 || x[2] > 0 {
			return x[2], m.check()
		}
	}
}

// shrink continues without the lost ranks. It takes back the steps after the last operation that
// all other ranks completed, because some of these ranks may not have counted them. It returns an
// error if the history does not go back so far.
func (m *elasticRank) shrink() error {
	next, done, err := m.c.Shrink(m.ctx)
	if err != nil {
		return err
	}
	m.c = next
	for len(m.history) > 1 && m.history[len(m.history)-1].op > done {
		m.history = m.history[:len(m.history)-1]
	}
	last := m.history[len(m.history)-1]
	if last.op > max(done, 1) {
		return fmt.Errorf("operation %d was the last of all, and this rank knows only from %d on", done, last.op)
	}
	m.step, m.total = last.step, last.total
	return nil
}

// check computes the sum that the ranks of all generations must have added up to, and returns an error
// if the total differs.
func (m *elasticRank) check() error {
	want, numbers := m.admitted.total, int64(0)
	for s := m.admitted.step; s < m.step; s++ {
		for _, e := range m.generations {
			if e.from <= s {
				numbers = e.numbers
			}
		}
		want += (s + 1) * numbers
	}
	if m.total != want {
		return fmt.Errorf("after %d steps the sum is %d, want %d", m.step, m.total, want)
	}
	return nil
}
