package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"
)

// outputs are the destinations of a job's output: the two Writers of Config, each with
// its sink. They serve all attempts of the job.
type outputs struct {
	writers [2]io.Writer // Config.Stdout and Config.Stderr
	sinks   [2]*sink     // the same sink twice if both Writers share a destination

	mu         sync.Mutex
	incomplete []string // log files with write errors; guarded by mu
}

func newOutputs(cfg *Config) *outputs {
	o := &outputs{writers: [2]io.Writer{cfg.Stdout, cfg.Stderr}}
	o.sinks[0] = newSink()
	if o.sinks[1] = o.sinks[0]; !samePlace(cfg.Stdout, cfg.Stderr) {
		o.sinks[1] = newSink()
	}
	return o
}

// samePlace reports whether two Writers must not be written concurrently: they are one
// value, or files of one terminal, pipe or file.
func samePlace(a, b io.Writer) bool {
	if reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b {
		return true
	}
	f, ok1 := a.(*os.File)
	g, ok2 := b.(*os.File)
	if !ok1 || !ok2 {
		return false
	}
	first, err1 := f.Stat()
	second, err2 := g.Stat()
	return err1 == nil && err2 == nil && os.SameFile(first, second)
}

// printf prints a line of the launcher itself to Stderr, between the ranks' lines.
func (o *outputs) printf(format string, args ...any) {
	o.print(fmt.Sprintf("tutti: "+format+"\n", args...))
}

// print writes whole lines to Stderr, between the ranks' lines.
func (o *outputs) print(lines string) {
	s := o.sinks[1]
	s.acquire()
	defer s.release()
	s.endLine()
	_, _ = io.WriteString(o.writers[1], lines)
}

// logFailed records and reports that a log file is incomplete.
func (o *outputs) logFailed(name string, cause error) {
	o.mu.Lock()
	o.incomplete = append(o.incomplete, name)
	o.mu.Unlock()
	var path *os.PathError
	if errors.As(cause, &path) {
		cause = path.Err
	}
	o.printf("the log file %s is incomplete: %v; the output is passed on without it; make room, or choose another --log-dir", name, cause)
}

// incompleteLogs returns the log files that are incomplete.
func (o *outputs) incompleteLogs() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.incomplete)
}

// A sink serializes the streams that write to one destination, so that their lines do
// not mix. Streams get turns in order of arrival.
type sink struct {
	promptDelay time.Duration // see the constant promptDelay
	maxTurnIdle time.Duration // see the constant maxTurnIdle

	mu         sync.Mutex
	busy       bool            // a stream holds the turn; guarded by mu
	queue      []chan struct{} // waiting streams; a channel is closed to pass the turn; guarded by mu
	unfinished int             // streams whose last line has no newline yet; guarded by mu

	// open is the stream whose unfinished line was written last; nil at the beginning
	// of a line. It belongs to the stream that holds the turn.
	open *stream
}

func newSink() *sink { return &sink{promptDelay: promptDelay, maxTurnIdle: maxTurnIdle} }

// acquire waits for the turn.
func (s *sink) acquire() {
	s.mu.Lock()
	if !s.busy {
		s.busy = true
		s.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	s.queue = append(s.queue, turn)
	s.mu.Unlock()
	<-turn
}

// release passes the turn to the next stream.
func (s *sink) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.busy = false
		return
	}
	close(s.queue[0])
	s.queue = s.queue[1:]
}

// hasWaiters reports whether streams wait for the turn.
func (s *sink) hasWaiters() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// addUnfinished adds n to the number of streams with an unfinished line, and returns
// the sum.
func (s *sink) addUnfinished(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unfinished += n
	return s.unfinished
}

// endLine writes a newline if the last line written is unfinished. The caller holds the
// turn.
func (s *sink) endLine() {
	if s.open != nil {
		s.open.send([]byte{'\n'})
		s.open = nil
	}
}

// openLog creates the log file for one output of a rank; nil if dir is empty.
func openLog(dir, name string) (*os.File, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(dir, name))
}
