package launch

import (
	"bytes"
	"strings"
	"sync"
)

// A tail is the last that a rank has printed.
type tail struct {
	mu    sync.Mutex
	lines []string
	panic string // the line that says why, if it panicked
}

const (
	tailLines = 10   // how many lines a report shows
	tailWidth = 500  // how much of each, in bytes
	headRoom  = 4096 // how much of a line is remembered until it ends, in bytes
)

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.panic == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) {
		t.panic = line
	}
	if len(t.lines) == tailLines {
		t.lines = t.lines[1:]
	}
	t.lines = append(t.lines, line[:min(len(line), tailWidth)])
}

// last returns the lines, with what says why in front.
func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.panic != "" {
		return append([]string{t.panic, "..."}, t.lines...)
	}
	return append([]string(nil), t.lines...)
}

// A lineHead cuts a stream of bytes into lines for a tail, of which it keeps the
// beginnings.
type lineHead struct {
	text  []byte
	begun bool
}

// write adds bytes, which may be several lines and end within one.
func (h *lineHead) write(data []byte, to *tail) {
	for len(data) > 0 {
		piece, rest, ended := bytes.Cut(data, []byte{'\n'})
		h.text, h.begun = append(h.text, piece[:min(len(piece), headRoom-len(h.text))]...), true
		if ended {
			h.end(to)
		}
		data = rest
	}
}

// end ends the last line.
func (h *lineHead) end(to *tail) {
	if h.begun {
		to.add(string(bytes.TrimRight(h.text, "\r")))
	}
	h.text, h.begun = h.text[:0], false
}
