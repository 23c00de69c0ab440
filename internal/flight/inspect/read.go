// Package inspect reads the dumps of the flight recorders of a job's ranks and
// combines them. It names the ranks that are behind, that are missing and that
// disagree, and writes a report as text, as an HTML page, and as a trace.
package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/flight"
)

// Read reads dumps from paths. A path is a file, which may hold several dumps, or a folder, of which
// it reads the files whose names end in .json.
func Read(paths []string) ([]*flight.Dump, error) {
	var list []*flight.Dump
	for _, p := range paths {
		files := []string{p}
		if info, err := os.Stat(p); err != nil {
			return nil, err
		} else if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(p, "*.json")); err != nil {
				return nil, err
			}
		}
		for _, name := range files {
			dumps, err := readFile(name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			list = append(list, dumps...)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there are no dumps in %s", strings.Join(paths, ", "))
	}
	return list, nil
}

func readFile(name string) ([]*flight.Dump, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Decode(f)
}

// Decode reads consecutive dumps and checks them. The result is safe to render,
// even if the source is not trusted.
func Decode(r io.Reader) (list []*flight.Dump, err error) {
	in := &boundedReader{r: r}
	d := json.NewDecoder(in)
	for {
		in.left = maxDump
		var encoded encodedDump
		switch err := d.Decode(&encoded); {
		case errors.Is(err, io.EOF):
			return list, nil
		case errors.Is(err, errDumpSize):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("it is not a flight recorder's dump: %w", err)
		}
		dump, err := encoded.decode()
		if err != nil {
			return nil, err
		}
		list = append(list, dump)
	}
}

// A Comm is a communicator, as the dumps of its ranks describe it.
type Comm struct {
	Name  string
	Size  int            // number of ranks, as the dumps say
	Ranks []*flight.Dump // one per rank that left a dump, in the order of ranks
}

// Comms groups dumps by communicator. Of several dumps of one rank it uses the
// newest. Communicators with an error or with ranks that differ come first. Memory
// use depends on the number of dumps, not on Size.
func Comms(dumps []*flight.Dump) []*Comm {
	type rankOf struct {
		comm string
		rank int
	}
	newest := make(map[rankOf]*flight.Dump)
	byName := make(map[string]*Comm)
	var list []*Comm
	for _, d := range dumps {
		c := byName[d.Comm]
		if c == nil {
			c = &Comm{Name: d.Comm}
			byName[d.Comm] = c
			list = append(list, c)
		}
		c.Size = max(c.Size, d.Size)
		key := rankOf{d.Comm, d.Rank}
		if old := newest[key]; old == nil || written(old).Before(written(d)) {
			newest[key] = d
		}
	}
	for key, d := range newest {
		c := byName[key.comm]
		c.Ranks = append(c.Ranks, d)
	}
	for _, c := range list {
		slices.SortFunc(c.Ranks, func(a, b *flight.Dump) int { return a.Rank - b.Rank })
	}
	slices.SortStableFunc(list, func(a, b *Comm) int { return b.severity() - a.severity() })
	return list
}

// of returns a rank's dump, or nil.
func (c *Comm) of(rank int) *flight.Dump {
	i, ok := slices.BinarySearchFunc(c.Ranks, rank, func(d *flight.Dump, rank int) int { return d.Rank - rank })
	if !ok {
		return nil
	}
	return c.Ranks[i]
}

// absent returns the first ranks without a dump, at most most, and the total number
// of them.
func (c *Comm) absent(most int) (list []int, n int) {
	n = c.Size - len(c.Ranks)
	next := 0
	for r := 0; len(list) < min(n, most); r++ {
		if next < len(c.Ranks) && c.Ranks[next].Rank == r {
			next++
			continue
		}
		list = append(list, r)
	}
	return list, n
}

// severity orders communicators: higher values come first.
func (c *Comm) severity() int {
	t := 0
	if len(c.Ranks) < c.Size {
		t = 1
	}
	for _, d := range c.Ranks {
		switch {
		case d.Error != nil:
			return 3
		case last(d) != nil && last(d).State == flight.StateRunning:
			t = 2
		}
	}
	return t
}

// written returns when a dump was written.
func written(d *flight.Dump) time.Time { return d.Began.Add(time.Duration(d.At)) }

// last returns the newest operation that was begun, or nil.
func last(d *flight.Dump) *flight.Op {
	for i := len(d.Ops) - 1; i >= 0; i-- {
		if d.Ops[i].State != flight.StateQueued {
			return &d.Ops[i]
		}
	}
	return nil
}

// find returns the operation with a number, or nil.
func find(d *flight.Dump, seq uint64) *flight.Op {
	i, ok := slices.BinarySearchFunc(d.Ops, seq, func(op flight.Op, seq uint64) int {
		return bySeq(op, flight.Op{Seq: seq})
	})
	if !ok {
		return nil
	}
	return &d.Ops[i]
}
