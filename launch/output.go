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

// outputs are where the output of a job goes: the two Writers of Config, each with
// the sink of its place. They serve all attempts of the job.
type outputs struct {
	writers [2]io.Writer // Config.Stdout and Config.Stderr
	sinks   [2]*sink     // the same sink twice if both Writers write to one place

	mu         sync.Mutex
	incomplete []string // log files that could not be written to their end; guarded by mu
}

func newOutputs(cfg *Config) *outputs {
	o := &outputs{writers: [2]io.Writer{cfg.Stdout, cfg.Stderr}}
	o.sinks[0] = newSink()
	if o.sinks[1] = o.sinks[0]; !samePlace(cfg.Stdout, cfg.Stderr) {
		o.sinks[1] = newSink()
	}
	return o
}

// samePlace reports whether two Writers must not be written to at the same time:
// they are one value, or files of one terminal, pipe or file.
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

// say writes a line of the launcher's own to Stderr, among the ranks' lines.
func (o *outputs) say(format string, args ...any) {
	o.print(fmt.Sprintf("tutti: "+format+"\n", args...))
}

// print writes whole lines to Stderr, among the ranks' lines.
func (o *outputs) print(lines string) {
	s := o.sinks[1]
	s.acquire()
	defer s.release()
	s.endLine()
	_, _ = io.WriteString(o.writers[1], lines)
}

// logFailed notes that the rest of an output is missing in its log file.
func (o *outputs) logFailed(name string, cause error) {
	o.mu.Lock()
	o.incomplete = append(o.incomplete, name)
	o.mu.Unlock()
	var path *os.PathError
	if errors.As(cause, &path) {
		cause = path.Err
	}
	o.say("the log file %s is incomplete: %v; the output is passed on without it; make room, or choose another --log-dir", name, cause)
}

// lacking returns the log files that are incomplete.
func (o *outputs) lacking() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.incomplete)
}

// A sink is one place to which streams write in turn, so that lines of different
// streams do not mix. Turns are first come, first served.
type sink struct {
	quiet    time.Duration // see quietTime
	turnIdle time.Duration // see turnIdle

	mu    sync.Mutex
	busy  bool            // a stream has the turn; guarded by mu
	queue []chan struct{} // streams that wait for the turn, each closed when it comes; guarded by mu
	lines int             // streams whose last line has no end yet; guarded by mu

	// open is the stream whose unfinished line was written last; nil if the place
	// is at the beginning of a line. It belongs to the stream that has the turn.
	open *stream
}

func newSink() *sink { return &sink{quiet: quietTime, turnIdle: turnIdle} }

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

// release passes the turn on.
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

// awaited reports whether others wait for the turn.
func (s *sink) awaited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// count adds n to the number of streams with an unfinished line, and returns it.
func (s *sink) count(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines += n
	return s.lines
}

// endLine begins a new line if an unfinished one was written last. The caller has
// the turn.
func (s *sink) endLine() {
	if s.open != nil {
		s.open.send([]byte{'\n'})
		s.open = nil
	}
}

// openLog makes the file for one output of one rank; nil if there is no folder.
func openLog(dir, name string) (*os.File, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(dir, name))
}
