package sim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// A Tally counts what happened in runs, for a table of results.
type Tally struct {
	First    uint64 // first seed
	Seeds    int
	Runs     int
	Fired    [LastKind + 1]int // by kind: number of faults that happened
	Ops      int               // operations that ranks completed
	Messages int
	Replays  int // runs that were repeated with the same result
}

// Add counts a run.
func (t *Tally) Add(res *Result, faults []Fault) {
	t.Runs++
	t.Ops += res.Ops
	for _, n := range res.Messages {
		t.Messages += n
	}
	for i, fired := range res.Fired {
		if fired {
			t.Fired[faults[i].Kind]++
		}
	}
}

// Record writes the counts as a table to out, and as a row of the table in a file,
// if file is not empty.
func (t *Tally) Record(out io.Writer, file, what string, took time.Duration, note string) error {
	if err := t.row(out, true, what, took, note); err != nil || file == "" {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	at, err := f.Seek(0, io.SeekEnd)
	return errors.Join(err, t.row(f, at == 0, what, took, note), f.Close())
}

// row writes the counts as a row of a table, and the head of the table before it if
// head is true.
func (t *Tally) row(out io.Writer, head bool, what string, took time.Duration, note string) error {
	if head {
		row, line := "| what | seeds | runs |", "| --- | --- | --- |"
		for k := Crash; k <= LastKind; k++ {
			row, line = row+fmt.Sprintf(" %v |", k), line+" --- |"
		}
		if _, err := fmt.Fprintf(out, "%s operations | messages | replays | time | and |\n%s --- | --- | --- | --- | --- |\n", row, line); err != nil {
			return err
		}
	}
	row := fmt.Sprintf("| %s | %d from %d | %d |", what, t.Seeds, t.First, t.Runs)
	for k := Crash; k <= LastKind; k++ {
		row += fmt.Sprintf(" %d |", t.Fired[k])
	}
	_, err := fmt.Fprintf(out, "%s %d | %d | %d | %v | %s |\n", row, t.Ops, t.Messages, t.Replays, took.Round(time.Second), note)
	return err
}
