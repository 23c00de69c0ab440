package tutti

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	recorder "github.com/tutti-go/tutti/internal/flight"
)

// Dump writes, as JSON, what this rank has done last on this Comm, and what it
// is doing: up to 2048 operations, and as many messages, with their sizes, times
// and states. It waits for no other rank, and may be called at any time, also
// while operations hang, and after the Comm was poisoned or closed. `tutti
// inspect` puts the dumps of several ranks together and says who is behind.
//
// Recording is always on. Most small operations have a number and no times; see
// OpStats for those that have.
func (c *Comm) Dump(w io.Writer) error {
	e := json.NewEncoder(w)
	return e.Encode(c.dump())
}

func (c *Comm) dump() *recorder.Dump {
	host, _ := os.Hostname() // for people
	d := &recorder.Dump{
		Comm: c.home.title(), Rank: c.rank, Size: c.size, World: c.home.ids[c.rank], Host: host, PID: os.Getpid(),
	}
	c.mu.Lock()
	p, waiting := c.progress()
	d.Closed = c.queue.turn.Load()&closed != 0
	if p.Running {
		c.transfers.active.Add(1) // Close waits: the engine's memory goes with it
	}
	c.mu.Unlock()
	if f := c.e.Failure(); f != nil {
		d.Error = &recorder.Error{
			Kind: f.Kind.Error(), Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Text: publicError(f, c.rank).Error(),
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

// A keeper tells the launcher, and leaves a dump in a folder, when a Comm is
// poisoned.
type keeper struct {
	over chan struct{} // closed by Close
	end  sync.Once
	done chan struct{} // closed when there will be no dump any more, or not soon
	late sync.Once
}

// finish has nobody wait any more.
func (k *keeper) finish() { k.late.Do(func() { close(k.done) }) }

// dumpTime is how long an error may be held back until that is done: a program
// may exit on it. A folder may also never answer.
const dumpTime = time.Second

// keep begins to look after a Comm, if somebody wants to know.
func (c *Comm) keep() {
	t, dir := c.home.teller, c.home.cfg.FlightDir
	if dir == "" && t == nil {
		return
	}
	k := &keeper{over: make(chan struct{}), done: make(chan struct{})}
	c.keeper = k
	t.add(c)
	go func() {
		defer k.finish()
		select {
		case <-c.e.Failed():
		case <-k.over:
			if c.e.Failure() == nil {
				return
			}
		}
		defer time.AfterFunc(dumpTime, k.finish).Stop()
		t.tell()
		c.leave()
	}()
}

// leave leaves a dump, if there is a folder.
func (c *Comm) leave() {
	if c.home.cfg.FlightDir == "" {
		return
	}
	if err := c.leaveDump(); err != nil {
		c.home.cfg.Logger.Warn("tutti: the flight recorder's dump could not be written", "reason", err)
	}
}

// kept waits until the launcher knows that a Comm is poisoned, and its dump is
// written, but not for long. The dump needs c.mu.
func (c *Comm) kept() {
	if c.keeper != nil && c.e.Failure() != nil {
		<-c.keeper.done
	}
}

// release ends the goroutines that watch the Comm.
func (c *Comm) release() {
	if c.driver != nil {
		c.driver.end()
	}
	if c.keeper != nil {
		c.keeper.end.Do(func() { close(c.keeper.over) })
		<-c.keeper.done
		c.home.teller.remove(c)
	}
}

// leaveDump writes the dump to its file, which is never seen half written.
func (c *Comm) leaveDump() error {
	if err := os.MkdirAll(c.home.cfg.FlightDir, 0o755); err != nil {
		return err
	}
	name := strings.NewReplacer("/", "_", ".", "-").Replace(c.home.title())
	f, err := os.CreateTemp(c.home.cfg.FlightDir, ".flight-*")
	if err != nil {
		return err
	}
	err = c.Dump(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		path := filepath.Join(c.home.cfg.FlightDir, fmt.Sprintf("flight-%s-rank%d-pid%d.json", name, c.rank, os.Getpid()))
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
