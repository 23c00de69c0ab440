package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// A log is all that has happened in a run: its hash, and its text if somebody
// wants to read it.
type log struct {
	hash    engine.Hash
	entries int
	out     io.Writer // nil: nobody
}

// note writes one entry. The numbers mean what the kind of entry says.
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
