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
// describes which operations are timed.
func (c *Comm) Dump(w io.Writer) error {
	e := json.NewEncoder(w)
	return e.Encode(c.dump())
}

// dump copies the recorder's state, the queue and the first failure for a flight dump. Any goroutine may call
// it. It holds c.mu only to read the queue, and counts as an active transfer while it reads the engine, so
// that Close waits for it.
func (c *Comm) dump() *recorder.Dump {
	host, _ := os.Hostname() // for people
	d := &recorder.Dump{
		Comm: c.member.Title(), Rank: c.rank, Size: c.size, World: c.member.World(), Host: host, PID: os.Getpid(),
	}
	c.mu.Lock()
	p, waiting := c.progress()
	d.Closed = c.queue.turn.Load()&closed != 0
	if p.Running {
		c.transfers.active.Add(1) // makes Close wait, because it unmaps memory that the engine reads here
	}
	c.mu.Unlock()
	if f := c.e.Failure(); f != nil {
		e, _ := publicError(f, c.rank)
		d.Error = &recorder.Error{
			Kind: f.Kind.Error(), Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Text: e.Error(),
		}
	}
	if p.Running {
		d.Behind = engine.Behind(c.e)
		c.done()
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
func (c *reported) Busy() bool              { return !(*idle)(c).Ready() }
func (c *reported) Dump() *recorder.Dump    { return (*Comm)(c).dump() }

// awaitReport waits until a poisoned Comm is reported, for a short time at most: the program may
// exit on its error. The caller must not hold c.mu, which a dump needs.
func (c *Comm) awaitReport() { c.reports.Await() }

// release ends the goroutines that watch the Comm.
func (c *Comm) release() {
	if c.driver != nil {
		c.driver.end()
	}
	c.reports.Close()
}
