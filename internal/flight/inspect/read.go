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

// Decode reads dumps, one after another.
func Decode(r io.Reader) (list []*flight.Dump, err error) {
	for d := json.NewDecoder(r); ; {
		dump := new(flight.Dump)
		switch err := d.Decode(dump); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("it is not a flight recorder's dump: %w", err)
		case dump.Version != flight.Version:
			return nil, fmt.Errorf("it is a dump of version %d; this tutti reads version %d", dump.Version, flight.Version)
		case dump.Size < 1 || dump.Rank < 0 || dump.Rank >= dump.Size:
			return nil, fmt.Errorf("it is a dump of rank %d of %d ranks", dump.Rank, dump.Size)
		}
		list = append(list, dump)
	}
}

// A Comm is a communicator, as its ranks' dumps show it.
type Comm struct {
	Name  string
	Ranks []*flight.Dump // by rank; nil: there is none
}

// Comms puts dumps of one communicator together. Of several by one rank the
// newest counts. The one with an error, or whose ranks differ, comes first.
func Comms(dumps []*flight.Dump) []*Comm {
	byName := make(map[string]*Comm)
	var list []*Comm
	for _, d := range dumps {
		c := byName[d.Comm]
		if c == nil {
			c = &Comm{Name: d.Comm, Ranks: make([]*flight.Dump, d.Size)}
			byName[d.Comm] = c
			list = append(list, c)
		}
		for len(c.Ranks) < d.Size {
			c.Ranks = append(c.Ranks, nil)
		}
		if old := c.Ranks[d.Rank]; old == nil || written(old).Before(written(d)) {
			c.Ranks[d.Rank] = d
		}
	}
	slices.SortStableFunc(list, func(a, b *Comm) int { return b.trouble() - a.trouble() })
	return list
}

// trouble is how much a communicator deserves to be looked at.
func (c *Comm) trouble() int {
	t := 0
	for _, d := range c.Ranks {
		switch {
		case d == nil:
			t = max(t, 1)
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
		switch {
		case op.Seq < seq:
			return -1
		case op.Seq > seq:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &d.Ops[i]
}
