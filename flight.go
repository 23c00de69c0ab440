package tutti

import (
	"encoding/json"
	"io"
	"os"

	"github.com/tutti-go/tutti/internal/engine"
	recorder "github.com/tutti-go/tutti/internal/flight"
)

// An origin is where a Comm comes from.
type origin struct {
	name  string // the same on all its ranks
	world int    // this rank's number in the job
}

func (c *Config) origin(rank int) origin { return origin{name: "world", world: rank} }

// Dump writes, as JSON, what this rank has done last on this Comm, and what it
// is doing: up to 2048 operations, and as many messages, with their sizes, times
// and states. It waits for nothing, and may be called at any time, also while
// operations hang, are poisoned or the Comm is closed. `tutti inspect` puts the
// dumps of several ranks together and says who is behind.
//
// Recording is always on and takes no clock for most small operations: those
// have a number and no times.
func (c *Comm) Dump(w io.Writer) error {
	e := json.NewEncoder(w)
	return e.Encode(c.dump())
}

func (c *Comm) dump() *recorder.Dump {
	host, _ := os.Hostname() // for people
	d := &recorder.Dump{
		Comm: c.origin.name, Rank: c.rank, Size: c.size, World: c.origin.world, Host: host, PID: os.Getpid(),
	}
	c.mu.Lock()
	turn := c.turn.Load()
	p := recorder.Progress{Last: turn / numberOne, Running: turn&running != 0, Posted: c.posted}
	var waiting []recorder.Op
	for _, t := range c.queue.waiting() {
		p.Last = min(p.Last, t.seq-1)
		waiting = append(waiting, c.log.Describe(t.seq, t.calls, t.queued))
	}
	c.mu.Unlock()
	d.Closed = turn&closed != 0
	if f := c.e.Failure(); f != nil {
		d.Error = &recorder.Error{Kind: f.Kind.Error(), Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Text: c.failure(f).Error()}
	}
	if p.Running {
		d.Behind = engine.Behind(c.e)
	}
	c.log.Snapshot(d, p)
	d.Ops = append(d.Ops, waiting...)
	return d
}
