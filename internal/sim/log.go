package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// A log is the hash of all events of a run, and their text if a writer is set.
type log struct {
	hash    engine.Hash
	entries int
	out     io.Writer // nil: no text
}

// note adds one entry. The kind of entry defines what the numbers mean.
func (l *log) note(now int64, what string, a, b, n int) {
	l.entries++
	h := l.hash.Text(what)
	for _, v := range [...]uint64{uint64(now), uint64(a), uint64(b), uint64(n)} {
		h = h.Word(v)
	}
	l.hash = h
	if l.out != nil {
		fmt.Fprintf(l.out, "%12v %-10s %4d %4d %d\n", time.Duration(now), what, a, b, n)
	}
}
