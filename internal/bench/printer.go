package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A Printer shows a run on a terminal or writes it as JSON. Several goroutines may
// use it.
type Printer struct {
	mu            sync.Mutex // guards writing to out and err, and the fields from progressShown on
	o             *Options
	out, err      io.Writer
	progress      bool
	begin         time.Time
	progressShown bool      // a line of progress is on the terminal
	current       string    // what is measured
	since         time.Time // when its measurement began

	start  *Start
	group  string  // group of the last row
	points []Point // in order; passes are merged
	index  map[key]int
	links  []Link
	done   *Finish
	saved  *SavedRun
}

// newPrinter returns the Printer of a run. It fails before anything is measured if the page cannot
// be written or the saved run cannot be read.
func newPrinter(o *Options, c *Command) (*Printer, error) {
	s := &Printer{o: o, out: c.Stdout, err: c.Stderr, progress: c.Progress, begin: time.Now(), index: map[key]int{}}
	if o.HTML != "" {
		if err := writable(o.HTML); err != nil {
			return nil, fmt.Errorf("--html: %w", err)
		}
	}
	if o.Against != "" {
		var err error
		if s.saved, err = ReadSaved(o.Against); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Handle shows an event. It returns a write error. It may be called from any goroutine; mu
// serializes the calls.
func (s *Printer) Handle(e Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.Start != nil:
		s.start = e.Start
		if !s.o.JSON {
			return s.print(s.header())
		}
	case e.Step != nil:
		s.step(e.Step)
	case e.Point != nil:
		return s.point(e.Point)
	case e.Link != nil:
		s.links = append(s.links, *e.Link)
		if s.o.JSON {
			return s.json(&e.Link.Small, &e.Link.Large)
		}
	case e.Done != nil:
		s.done = e.Done
	}
	return nil
}

// Notices returns a writer for text that is not a result. It does not disturb the
// progress line.
func (s *Printer) Notices() io.Writer { return notices{s} }

type notices struct{ s *Printer }

func (a notices) Write(p []byte) (int, error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.s.clearProgress()
	return a.s.err.Write(p)
}

// print writes results over the progress line.
func (s *Printer) print(text string) error {
	s.clearProgress()
	_, err := io.WriteString(s.out, text)
	return err
}

func (s *Printer) json(list ...*Result) error {
	for _, r := range list {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := s.print(string(line) + "\n"); err != nil {
			return err
		}
	}
	return nil
}

// step records what is measured now. If standard error is a terminal, it shows the progress there in
// one line. The caller holds mu.
func (s *Printer) step(t *Step) {
	s.current, s.since = t.What, time.Now()
	if !s.progress {
		return
	}
	const width = 24
	full := width * t.Done / max(t.Of, 1)
	text := fmt.Sprintf("[%s%s] %d/%d %s, %.0fs", strings.Repeat("=", full), strings.Repeat(" ", width-full), t.Done+1, t.Of, t.What,
		time.Since(s.begin).Seconds())
	if t.Pass > 0 {
		text += fmt.Sprintf(", pass %d", t.Pass+1)
	}
	s.clearProgress()
	fmt.Fprint(s.err, text[:min(len(text), 79)])
	s.progressShown = true
}

// stuckTime is how long a step may take before the report on a stopped run includes
// the ranks' diagnosis.
const stuckTime = 5 * time.Second

// stopText describes what a run measured when it was stopped, and, if that took
// long, the diagnosis of its ranks.
func (s *Printer) stopText(found []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.current == "":
		return ""
	case time.Since(s.since) < stuckTime || len(found) == 0:
		return " during " + s.current
	}
	return " during " + s.current + ": " + strings.Join(found, " ")
}

// clearProgress clears the progress line.
func (s *Printer) clearProgress() {
	if s.progressShown {
		fmt.Fprint(s.err, "\r\x1b[K")
		s.progressShown = false
	}
}

// point shows one point and its wrong results, and keeps it for the end of the run. The caller
// holds mu.
func (s *Printer) point(p *Point) error {
	i, again := s.index[p.Result.key()]
	if again {
		s.points[i].merge(p)
	} else {
		s.index[p.Result.key()] = len(s.points)
		s.points = append(s.points, *p)
	}
	var err error
	switch {
	case s.o.JSON:
		err = s.json(&p.Result)
	case s.o.Duration == 0:
		err = s.print(s.row(p))
	}
	s.clearProgress()
	for _, w := range p.Wrongs {
		fmt.Fprintf(s.err, "tutti bench: wrong result: %s\n", w)
	}
	return err
}

// String names rank, index, got and want.
func (w Wrong) String() string {
	return fmt.Sprintf("%s: rank %d, index %d: got %s, want %s (%d wrong on this rank)", w.What, w.Rank, w.Index, w.Got, w.Want, w.Count)
}

// merge adds another pass: it keeps the typical time of all, the worst and the
// best.
func (p *Point) merge(q *Point) {
	a, b := &p.Result, &q.Result
	n := float64(a.Iters + b.Iters)
	a.P50 = digits((a.P50*float64(a.Iters)+b.P50*float64(b.Iters))/n, 5)
	if a.P50 > 0 {
		bus := 0.0
		if b.AlgBW > 0 {
			bus = b.BusBW / b.AlgBW
		}
		alg := float64(a.Bytes) / a.P50 / 1e3
		a.AlgBW, a.BusBW = digits(alg, 5), digits(alg*bus, 5)
	}
	a.P99, a.Min = max(a.P99, b.P99), min(a.Min, b.Min)
	a.Iters += b.Iters
	a.Wrong += b.Wrong
	p.Noise = max(p.Noise, q.Noise)
	for i := range p.Ranks {
		p.Ranks[i] = max(p.Ranks[i], q.Ranks[i])
	}
	p.Low, p.High, p.Bins = q.Low, q.High, q.Bins // of the last pass
	p.Wrongs = append(p.Wrongs, q.Wrongs...)
}

// wrong returns the number of wrong elements. The caller holds mu, or no goroutine calls Handle any
// more.
func (s *Printer) wrong() (n int) {
	for i := range s.points {
		n += s.points[i].Result.Wrong
	}
	return n
}

// Close ends the run, and is called once. A run that succeeded gets a verdict and the page; the
// error says why these could not be written. A long run that failed shows its results so far.
func (s *Printer) Close(failed error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearProgress()
	if s.o.Duration > 0 && !s.o.JSON {
		for i := range s.points {
			if err := s.print(s.row(&s.points[i])); err != nil {
				return err
			}
		}
	}
	if failed != nil {
		return nil
	}
	if s.start == nil || s.done == nil {
		return fmt.Errorf("rank 0 has ended without a result")
	}
	var lost error // the run has a verdict even if its page cannot be written
	if s.o.HTML != "" {
		lost = s.page()
	}
	to := s.out
	if s.o.JSON {
		to = s.err
	}
	for _, o := range s.done.Outliers {
		fmt.Fprintln(to, "slow:", o)
	}
	if s.o.JSON {
		if s.saved != nil {
			fmt.Fprintln(to, s.comparison())
		}
		return lost
	}
	return errors.Join(s.print(s.footer(lost == nil)), lost)
}
