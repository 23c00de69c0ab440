package launch

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// A tail holds the last lines that a rank printed.
type tail struct {
	mu    sync.Mutex
	lines []string // guarded by mu
	panic string   // the line with the reason of a panic; "": none; guarded by mu
}

const (
	tailLines   = 10   // lines in a report
	tailWidth   = 500  // bytes of each line
	maxLineHead = 4096 // bytes of a line that are kept until it ends
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

// last returns the lines. The reason of a panic that is not among them comes first.
func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.panic != "" && !slices.Contains(t.lines, t.panic[:min(len(t.panic), tailWidth)]) {
		return append([]string{t.panic, "..."}, t.lines...)
	}
	return append([]string(nil), t.lines...)
}

// A lineHead splits a byte stream into lines for a tail. It keeps the first maxLineHead
// bytes of each line.
type lineHead struct {
	text  []byte
	begun bool
}

// write adds bytes, which may hold several lines and end within a line.
func (h *lineHead) write(data []byte, to *tail) {
	for len(data) > 0 {
		piece, rest, ended := bytes.Cut(data, []byte{'\n'})
		h.text, h.begun = append(h.text, piece[:min(len(piece), maxLineHead-len(h.text))]...), true
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
