package tutti

import (
	"encoding/json"
	"io"
	"os"

	"github.com/tutti-go/tutti/internal/engine"
	recorder "github.com/tutti-go/tutti/internal/flight"
)

// Dump writes this rank's flight recorder as JSON: the last 2048 operations on this
// Comm, and as many messages, with their sizes, times and states. It waits for no other
// rank. It may be called at any time, also while operations hang, and after the Comm was
// poisoned or closed. `tutti inspect` combines the dumps of several ranks and names the
// ranks that are behind.
//
// Recording is always on. Most small operations have a number and no times; OpStats
// says which have times.
func (c *Comm) Dump(w io.Writer) error {
	e := json.NewEncoder(w)
	return e.Encode(c.dump())
}

func (c *Comm) dump() *recorder.Dump {
	host, _ := os.Hostname() // for people
	d := &recorder.Dump{
		Comm: c.member.Title(), Rank: c.rank, Size: c.size, World: c.member.World(), Host: host, PID: os.Getpid(),
	}
	c.mu.Lock()
	turn := c.turn.Load()
	p := recorder.Progress{Last: turn / numberOne, Running: turn&running != 0, Posted: c.posted}
	var waiting []recorder.Op
	for _, t := range c.queue.waiting() {
		p.Last = min(p.Last, t.seq-1)
		waiting = append(waiting, c.log.Describe(t.seq, t.calls, t.queued))
	}
	switch {
	case len(c.given) > 0:
		p.Oldest = c.given[0].t.seq
	case c.giving:
		p.Oldest = c.gifts[0].seq
	}
	if p.Running {
		c.flying.Add(1) // Close waits: the engine's memory goes with it
	}
	c.mu.Unlock()
	d.Closed = turn&closed != 0
	if f := c.e.Failure(); f != nil {
		d.Error = &recorder.Error{
			Kind: f.Kind.Error(), Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Text: publicError(f, c.rank).Error(),
		}
	}
	if p.Running {
		d.Behind = engine.Behind(c.e)
		c.landed()
	}
	c.log.Snapshot(d, p)
	d.Ops = append(d.Ops, waiting...)
	return d
}

// reported is a Comm as package report uses it.
type reported Comm

func (c *reported) Title() string           { return c.member.Title() }
func (c *reported) Failed() <-chan struct{} { return c.e.Failed() }
func (c *reported) Poisoned() bool          { return c.e.Failure() != nil }
func (c *reported) Busy() bool              { return c.turn.Load()&running != 0 || c.flying.Load() > 0 }
func (c *reported) Dump() *recorder.Dump    { return (*Comm)(c).dump() }

// kept waits until a poisoned Comm is reported, for a short time at most: the program may
// exit on its error. The caller must not hold c.mu, which a dump needs.
func (c *Comm) kept() { c.reports.Await() }

// release ends the goroutines that watch the Comm.
func (c *Comm) release() {
	if w := c.driver.Load(); w != nil {
		w.end()
	}
	c.reports.Close()
}
