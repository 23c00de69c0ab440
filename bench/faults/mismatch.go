package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// Three ranks disagree. Where there are hosts, the third rank is alone on one.
const mismatchSize = 3

// mismatchEngines are the engines by name, and how long it may take until ranks that
// disagree are notified.
var mismatchEngines = map[string]time.Duration{
	"local": time.Second, "shm": time.Second, "tcp": time.Second, "hier": time.Second, "nccl": 3 * time.Second,
}

// tagTime is the deadline of messages with different tags. Only the deadline ends
// them, because a matching message may still be posted.
const tagTime = time.Second

// A disagreement is a call that one rank makes while the others make another.
type disagreement struct {
	name string
	// do returns this rank's error. A rank that has all that it needs may return
	// nil, and gets the error in its next call.
	do func(ctx context.Context, c *tutti.Comm, m *memory, n int, odd int) error
	// kind is the expected kind of error on all ranks; "": a mismatch.
	kind   string
	device bool // needs device memory
}

// A memory holds a rank's buffers.
type memory struct {
	floats [3]tutti.Buffer
	ints   tutti.Buffer
	host   tutti.Buffer // the first floats, in host memory
	free   func() error
}

func (m *memory) f(i, n int) tutti.Buffer { return m.floats[i].Slice(0, n) }

func hostMemory(n int) *memory {
	m := &memory{ints: tutti.Of(make([]int32, n)), free: func() error { return nil }}
	for i := range m.floats {
		m.floats[i] = tutti.Of(make([]float32, n))
	}
	m.host = m.floats[0]
	return m
}

// both returns a disagreement of which the odd rank runs odd and the others run
// all.
func both(all, odd func(b *tutti.Batch, m *memory, n int) *tutti.Batch) func(context.Context, *tutti.Comm, *memory, int, int) error {
	return func(ctx context.Context, c *tutti.Comm, m *memory, n, who int) error {
		f := all
		if c.Rank() == who {
			f = odd
		}
		w, err := f(c.Batch(), m, n).Start(ctx)
		if err != nil {
			return err
		}
		return w.Wait(context.Background())
	}
}

// message returns a disagreement in which the odd rank sends something other than
// the next rank expects. The third rank does nothing.
func message(kind func(m *memory, n int) (tutti.Buffer, int)) func(context.Context, *tutti.Comm, *memory, int, int) error {
	return func(ctx context.Context, c *tutti.Comm, m *memory, n, who int) error {
		switch c.Rank() {
		case who:
			buf, tag := kind(m, n)
			return c.Send(ctx, (who+1)%c.Size(), buf, tag)
		case (who + 1) % c.Size():
			w, err := c.Batch().Recv(who, m.f(0, n), 1).Start(ctx)
			if err != nil {
				return err
			}
			return w.Wait(context.Background())
		}
		return nil
	}
}

func sum(b *tutti.Batch, m *memory, n int) *tutti.Batch { return b.AllReduce(m.f(0, n), tutti.Sum) }

func twice(b *tutti.Batch, m *memory, n int) *tutti.Batch {
	return sum(b, m, n).Broadcast(m.f(1, n), 0)
}

func gathered(b *tutti.Batch, m *memory, n int) *tutti.Batch {
	return b.AllGatherV(m.f(0, mismatchSize*n).Parts(nil, slices.Repeat([]int{n}, mismatchSize)...), m.f(1, n))
}

var disagreements = []disagreement{
	{name: "verb", do: both(sum, func(b *tutti.Batch, m *memory, n int) *tutti.Batch { return b.Broadcast(m.f(0, n), 0) })},
	{name: "Barrier", do: both(sum, func(b *tutti.Batch, _ *memory, _ int) *tutti.Batch { return b.Barrier() })},
	{name: "count", do: both(sum, func(b *tutti.Batch, m *memory, n int) *tutti.Batch { return sum(b, m, n+1) })},
	{name: "type", do: both(sum, func(b *tutti.Batch, m *memory, n int) *tutti.Batch { return b.AllReduce(m.ints.Slice(0, n), tutti.Sum) })},
	{name: "op", do: both(sum, func(b *tutti.Batch, m *memory, n int) *tutti.Batch { return b.AllReduce(m.f(0, n), tutti.Max) })},
	{name: "root", do: both(
		func(b *tutti.Batch, m *memory, n int) *tutti.Batch { return b.Broadcast(m.f(0, n), 0) },
		func(b *tutti.Batch, m *memory, n int) *tutti.Batch { return b.Broadcast(m.f(0, n), 1) })},
	{name: "name", do: both(
		func(b *tutti.Batch, m *memory, n int) *tutti.Batch { return sum(b, m, n).Named("weights") },
		func(b *tutti.Batch, m *memory, n int) *tutti.Batch { return sum(b, m, n).Named("gradients") })},
	{name: "length of a Batch", do: both(twice, sum)},
	{name: "order in a Batch", do: both(twice, func(b *tutti.Batch, m *memory, n int) *tutti.Batch {
		return sum(b.Broadcast(m.f(1, n), 0), m, n)
	})},
	{name: "uneven count", do: func(ctx context.Context, c *tutti.Comm, m *memory, n, odd int) error {
		counts := slices.Repeat([]int{n}, mismatchSize)
		if c.Rank() == odd {
			counts[odd]++
		}
		return c.AllGatherV(ctx, m.f(0, mismatchSize*n+1).Parts(nil, counts...), m.f(1, counts[c.Rank()]))
	}},
	{name: "uneven form", do: both(gathered, func(b *tutti.Batch, m *memory, n int) *tutti.Batch {
		return b.AllGather(m.f(0, mismatchSize*n), m.f(1, n))
	})},
	{name: "message: count", do: message(func(m *memory, n int) (tutti.Buffer, int) { return m.f(0, n+1), 1 })},
	{name: "message: type", do: message(func(m *memory, n int) (tutti.Buffer, int) { return m.ints.Slice(0, n), 1 })},
	{name: "message: tag", kind: "timeout", do: func(ctx context.Context, c *tutti.Comm, m *memory, n, odd int) error {
		ctx, cancel := context.WithTimeout(ctx, tagTime)
		defer cancel()
		return message(func(m *memory, n int) (tutti.Buffer, int) { return m.f(0, n), 2 })(ctx, c, m, n, odd)
	}},
	{name: "device or host", device: true, do: both(sum, func(b *tutti.Batch, m *memory, n int) *tutti.Batch {
		return b.AllReduce(m.host.Slice(0, n), tutti.Sum)
	})},
}

// disagree runs one rank's part in a disagreement, and returns its error and when
// the call began.
func (d *disagreement) disagree(ctx context.Context, c *tutti.Comm, m *memory, n, odd int) (began time.Time, err error) {
	// All ranks have arrived, and their connections exist.
	if err := c.AllReduce(ctx, m.f(0, 100), tutti.Sum); err != nil {
		return time.Now(), err
	}
	began = time.Now()
	if err = d.do(ctx, c, m, n, odd); err != nil {
		return began, err
	}
	// The rank gets the error in its next call.
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	return began, c.Barrier(ctx)
}

// mismatchOptions are the options of mismatch.
type mismatchOptions struct {
	engines []string
	elems   []int
	library string // path of libnccl; "": the fake GPU
	only    string // name of a disagreement; "": all
	strict  bool   // a late error is a failure
	out     io.Writer
	// progress receives a line for each kind when it has been tried.
	progress io.Writer
}

// mismatch tries every kind of disagreement on every engine. It writes a table with the time from
// the last rank's call to the last rank's error. A kind that fails does not end it; the error joins
// all failures. An unknown engine is an error before the first trial.
func mismatch(o mismatchOptions) error {
	for _, name := range o.engines {
		if _, known := mismatchEngines[name]; !known {
			return fmt.Errorf("there is no engine %q: %s", name, strings.Join(slices.Sorted(maps.Keys(mismatchEngines)), ", "))
		}
	}
	table := make(map[string]map[string]string) // by disagreement and engine
	var failures []error
	for _, name := range o.engines {
		if err := o.column(name, mismatchEngines[name], table); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", name, err))
		}
	}
	fmt.Fprintf(o.out, "| ranks differ in | %s |\n|%s\n", strings.Join(o.engines, " | "), strings.Repeat(" --- |", 1+len(o.engines)))
	for i := range disagreements {
		d := &disagreements[i]
		row := []string{d.name}
		for _, e := range o.engines {
			row = append(row, table[d.name][e])
		}
		if len(table[d.name]) > 0 {
			fmt.Fprintf(o.out, "| %s |\n", strings.Join(row, " | "))
		}
	}
	return errors.Join(failures...)
}

// column tries every kind on one engine, even if others fail, and writes the texts to table. After
// a failure it starts a new job, because the state of the ranks is unknown.
func (o *mismatchOptions) column(engine string, limit time.Duration, table map[string]map[string]string) error {
	w, err := o.newJob(engine)
	if err != nil {
		return err
	}
	defer func() { w.end() }()
	var failures []error
	for i := range disagreements {
		d := &disagreements[i]
		if !strings.Contains(d.name, o.only) {
			continue
		}
		text, err := o.cell(w, i, limit)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", d.name, err))
			text = "FAILED"
		}
		if table[d.name] == nil {
			table[d.name] = make(map[string]string)
		}
		table[d.name][engine] = text
		fmt.Fprintf(o.progress, "%s, %s: %s\n", engine, d.name, text)
		if err == nil {
			continue
		}
		fmt.Fprintln(o.progress, failures[len(failures)-1])
		w.end() // the state of its ranks is unknown
		if w, err = o.newJob(engine); err != nil {
			return errors.Join(append(failures, err)...)
		}
	}
	return errors.Join(failures...)
}

// cell tries one kind with each number of elements, and returns the text for the table. With
// strict, ranks that are notified later than limit are a failure.
func (o *mismatchOptions) cell(w *mismatchJob, number int, limit time.Duration) (string, error) {
	d := &disagreements[number]
	if d.device && w.engine != "nccl" {
		return "no device", nil
	}
	var most time.Duration
	for _, n := range o.elems {
		took, err := w.try(number, n)
		if err != nil {
			return "", fmt.Errorf("%d elements: %w", n, err)
		}
		most = max(most, took)
	}
	text := fmt.Sprint(most.Round(100 * time.Microsecond))
	if d.kind == "timeout" {
		limit += tagTime
		text = fmt.Sprintf("%s after %v", errorNames[d.kind], most.Round(10*time.Millisecond))
	}
	if o.strict && most > limit {
		return "", fmt.Errorf("it took %v", most)
	}
	return text, nil
}

// A mismatchJob is the ranks that disagree on one engine: processes, or goroutines
// of this process.
type mismatchJob struct {
	engine string
	job    *job // nil: goroutines
}

// newJob starts the ranks of one engine and waits until they are ready. The engine "local" has no
// processes: try starts its ranks as goroutines. After an error no process is left.
func (o *mismatchOptions) newJob(name string) (*mismatchJob, error) {
	w := &mismatchJob{engine: name}
	if name == "local" {
		return w, nil
	}
	s := spec{ranks: mismatchSize, transport: name, state: "mismatch"}
	switch name {
	case "hier":
		s.names = []string{"one", "one", "two"}
	case "nccl":
		if o.library == "" {
			if _, err := fakegpu.Use(); err != nil {
				return nil, err
			}
		} else if err := os.Setenv("TUTTI_NCCL_LIBRARY", o.library); err != nil {
			return nil, err
		}
	}
	var err error
	w.job, err = start(s)
	if err == nil {
		err = w.job.awaitAll("ready", []int{0, 1, 2})
	}
	if err != nil && w.job != nil {
		w.job.end()
	}
	return w, err
}

// end ends the ranks. It gives them time to exit by themselves, because processes
// that share a GPU through MPS should not be killed.
func (w *mismatchJob) end() {
	if w == nil || w.job == nil {
		return
	}
	for _, k := range w.job.ranks {
		_ = k.in.Close()
	}
	for _, k := range w.job.ranks {
		kill := time.AfterFunc(5*time.Second, func() { _ = k.cmd.Process.Kill() })
		_ = k.wait()
		kill.Stop()
	}
	w.job.end()
}

// try runs one trial of the disagreement with that number. It returns the time from the last rank's
// call to the last rank's error. It is an error if a rank gets another kind of error, or is not
// told which rank differs.
func (w *mismatchJob) try(number, n int) (time.Duration, error) {
	d := &disagreements[number]
	odd := number % mismatchSize
	ends, err := w.ends(number, n, odd)
	if err != nil {
		return 0, err
	}
	want := d.kind
	if want == "" {
		want = "mismatch"
	}
	var began, ended int64
	for r, e := range ends {
		if e.Kind != want || !e.mentions(odd) {
			return 0, fmt.Errorf("rank %d differs, and rank %d was told %s: %q", odd, r, e.Kind, e.Text)
		}
		began, ended = max(began, e.Began), max(ended, e.At)
	}
	return time.Duration(ended - began), nil
}

// ends lets all ranks run their part of a disagreement and returns how each ended. With the engine
// "local" every rank is a goroutine, and mu guards ends until RunLocal has returned.
func (w *mismatchJob) ends(number, n, odd int) (map[int]end, error) {
	if w.job != nil {
		for _, k := range w.job.ranks {
			k.send(fmt.Sprintf("%d %d %d", number, n, odd))
		}
		return w.job.awaitEnds([]int{0, 1, 2})
	}
	var mu sync.Mutex
	ends := make(map[int]end)
	err := tutti.RunLocal(context.Background(), mismatchSize, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		began, err := disagreements[number].disagree(ctx, c, hostMemory(bufferElems(n)), n, odd)
		e := newEnd(0, nil, err)
		e.Began = began.UnixNano()
		mu.Lock()
		ends[c.Rank()] = e
		mu.Unlock()
		return nil
	})
	return ends, err
}

// bufferElems returns how many elements a rank's buffers need.
func bufferElems(n int) int { return max(100, mismatchSize*n+1) }
