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

// An elasticRank adds up, on the device, what all ranks contribute: in each step
// the step's number times each rank's own. It goes on when ranks are lost and
// when others come, and nothing may be lost or count twice.
type elasticRank struct {
	ctx   context.Context
	c     *tutti.Comm
	x     *cuda.Slice[int64]
	id    int64
	asks  chan string
	knows bool // the sum, as those do who have been there

	step, total int64
	ops         uint64   // that were completed on c
	past        []moment // after which of them the sum was what, the last few
	first       moment   // when this rank came
	generations []generation
}

// A moment is the sum after an operation.
type moment struct {
	op          uint64
	step, total int64
}

// A generation is the steps, from one on, in which the ranks' numbers had one sum.
type generation struct{ from, numbers int64 }

// elastic is such a rank's process. It says "ready" when it can join, "ready RANK
// SIZE" whenever it has a Comm, and in the end "ns STEPS TOTAL". It is told "grow N"
// and "stop".
func elastic() error {
	id, err := strconv.ParseInt(os.Getenv("GPUTEST_ID"), 10, 64)
	if err != nil {
		return err
	}
	dev, err := cuda.Open(0, nil)
	if err != nil {
		return err
	}
	m := &elasticRank{ctx: context.Background(), id: id, asks: make(chan string, 4), knows: os.Getenv("TUTTI_LATE") == ""}
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
			m.asks <- in.Text()
		}
	}()
	if m.c, err = tutti.Join(m.ctx, tutti.Config{Device: gpu.Device(0), Timeout: time.Minute}); err != nil {
		return err
	}
	for {
		err := m.work()
		if err == nil {
			break
		}
		if !errors.Is(err, tutti.ErrRankLost) && !errors.Is(err, tutti.ErrAborted) {
			return err
		}
		if err := m.shrink(); err != nil {
			return err
		}
	}
	fmt.Println("ns", m.step, m.total)
	return errors.Join(m.c.Close(), m.x.Free(), dev.Close())
}

// work goes on until some rank was told to stop.
func (m *elasticRank) work() error {
	for {
		if err := m.meet(); err != nil {
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

// meet finds out who is here, and tells those who have come what the sum is.
func (m *elasticRank) meet() error {
	m.ops, m.past = 0, []moment{{0, m.step, m.total}}
	mine := []int64{m.id + 1, m.step, m.total, 0}
	if m.knows {
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
	if !m.knows {
		m.knows, m.first = true, moment{0, m.step, m.total}
	}
	m.past = append(m.past, moment{m.ops, m.step, m.total})
	m.generations = append(m.generations, generation{m.step, numbers})
	fmt.Println("ready", m.c.Rank(), m.c.Size())
	return nil
}

// steps adds up until a rank was told something: to grow by so many, or, zero, to
// stop.
func (m *elasticRank) steps() (grow int64, err error) {
	for {
		x := []int64{(m.step + 1) * (m.id + 1), 0, 0}
		select {
		case ask := <-m.asks:
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
		m.past = append(m.past, moment{m.ops, m.step, m.total})
		if len(m.past) > 8 {
			m.past = slices.Delete(m.past, 0, 4)
		}
		if x[1] > 0 || x[2] > 0 {
			return x[2], m.check()
		}
	}
}

// shrink goes on without who was lost, from where all of the rest were.
func (m *elasticRank) shrink() error {
	next, done, err := m.c.Shrink(m.ctx)
	if err != nil {
		return err
	}
	m.c = next
	for len(m.past) > 1 && m.past[len(m.past)-1].op > done {
		m.past = m.past[:len(m.past)-1]
	}
	last := m.past[len(m.past)-1]
	if last.op > max(done, 1) {
		return fmt.Errorf("operation %d was the last of all, and this rank knows only from %d on", done, last.op)
	}
	m.step, m.total = last.step, last.total
	return nil
}

// check computes the sum again, from who was there when.
func (m *elasticRank) check() error {
	want, numbers := m.first.total, int64(0)
	for s := m.first.step; s < m.step; s++ {
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
