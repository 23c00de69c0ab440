package launch

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// tailLines is how many of a rank's last lines a report shows, and maxLine how
// much of a line is passed on at once.
const (
	tailLines = 10
	maxLine   = 64 << 10
)

// A sink takes whole lines from several ranks.
type sink struct {
	mu sync.Mutex
	w  io.Writer
}

// write drops what nobody takes any more: a reader that has gone must not stop
// the ranks.
func (s *sink) write(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.w.Write(line)
}

// A tail is the last that a rank has printed.
type tail struct {
	mu    sync.Mutex
	lines []string
	panic string // the line that says why, if it panicked
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.panic == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) {
		t.panic = line
	}
	if len(t.lines) == tailLines {
		t.lines = t.lines[1:]
	}
	const most = 500
	t.lines = append(t.lines, line[:min(len(line), most)])
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

// A stream is one output of one rank.
type stream struct {
	r      *os.File
	prefix string
	to     *sink
	file   *os.File // nil: none
	tail   *tail
}

// copy runs until all who hold the other end have closed it.
func (s *stream) copy() {
	defer s.r.Close()
	if s.file != nil {
		defer s.file.Close()
	}
	in := bufio.NewReaderSize(s.r, maxLine)
	line := []byte(s.prefix)
	for {
		piece, err := in.ReadSlice('\n')
		if s.file != nil {
			_, _ = s.file.Write(piece)
		}
		if len(piece) > 0 {
			line = append(line[:len(s.prefix)], piece...)
			if line[len(line)-1] != '\n' {
				line = append(line, '\n')
			}
			s.to.write(line)
			s.tail.add(strings.TrimRight(string(piece), "\r\n"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// openLog makes the file for one output of one rank.
func openLog(dir, name string) (*os.File, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(dir, name))
}
