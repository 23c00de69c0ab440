// Package inspect reads what the flight recorders of a job's ranks have left,
// puts it together, and says in plain words who is behind, who is missing and
// who disagrees; as text, as a page, and as a trace.
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

// Read reads dumps from files, each of which may hold several, and from all
// files of folders whose names end in .json.
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

// Decode reads dumps, one after another, and checks them: what it returns is safe
// to show, whoever wrote it.
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

// A Comm is a communicator, as its ranks' dumps show it.
type Comm struct {
	Name  string
	Size  int            // ranks, as the dumps say
	Ranks []*flight.Dump // one for each rank that left a dump, in the order of ranks
}

// Comms puts dumps of one communicator together. Of several by one rank the
// newest counts. The one with an error, or whose ranks differ, comes first.
// The memory that it takes depends on the number of dumps, not on Size.
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
	slices.SortStableFunc(list, func(a, b *Comm) int { return b.trouble() - a.trouble() })
	return list
}

// of returns a rank's dump; nil if there is none.
func (c *Comm) of(rank int) *flight.Dump {
	i, ok := slices.BinarySearchFunc(c.Ranks, rank, func(d *flight.Dump, rank int) int { return d.Rank - rank })
	if !ok {
		return nil
	}
	return c.Ranks[i]
}

// absent returns the first few ranks without a dump, at most most, and how many
// there are in all.
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

// trouble is how much a communicator deserves to be looked at.
func (c *Comm) trouble() int {
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

// written is when a dump was.
func written(d *flight.Dump) time.Time { return d.Began.Add(time.Duration(d.At)) }

// last is the newest operation that was begun; nil if there was none.
func last(d *flight.Dump) *flight.Op {
	for i := len(d.Ops) - 1; i >= 0; i-- {
		if d.Ops[i].State != flight.StateQueued {
			return &d.Ops[i]
		}
	}
	return nil
}

// find is the operation with a number; nil if it is not there.
func find(d *flight.Dump, seq uint64) *flight.Op {
	i, ok := slices.BinarySearchFunc(d.Ops, seq, func(op flight.Op, seq uint64) int {
		return bySeq(op, flight.Op{Seq: seq})
	})
	if !ok {
		return nil
	}
	return &d.Ops[i]
}
