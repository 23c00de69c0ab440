package launch

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

const (
	// maxHeldLine is the number of bytes of an unfinished line that a stream holds
	// back. A longer line is forwarded while it arrives.
	maxHeldLine = 64 << 10
	// promptDelay is how long a rank prints nothing before its unfinished line is
	// shown: the line may be a prompt.
	promptDelay = 100 * time.Millisecond
	// maxPromptDelay is the longest time between two checks whether an unfinished line
	// may be shown.
	maxPromptDelay = time.Second
	// maxTurnIdle and maxTurnBytes bound how long other streams wait for a long line
	// that has no end yet: the total time in which the rank pauses, and the bytes of
	// the line.
	maxTurnIdle  = time.Second
	maxTurnBytes = 16 << 20
)

// A stream is stdout or stderr of one rank. It forwards whole lines, each after the
// prefix. It does not split a line that arrives in pieces.
//
//   - The beginning of a line is held back until the line ends or exceeds maxHeldLine. A longer
//     line is forwarded piece by piece, and the stream keeps its turn until the line ends. The
//     other streams wait with full pipes, not in memory, within maxTurnIdle and maxTurnBytes.
//   - An unfinished line is shown when the rank is idle and no other stream of the sink has an
//     unfinished line, or at once if it continues the line that was shown. If another stream
//     writes after that, a newline is inserted, and the rest of the line gets its own prefix. A
//     rank that reads the standard input always shows its unfinished lines.
//   - The last line of a rank ends with a newline, which is added if the rank did not print it.
//
// The log file holds the bytes as the rank printed them.
type stream struct {
	r      *os.File
	w      io.Writer
	sink   *sink
	prefix string
	prompt bool // always show unfinished lines
	tail   *tail

	file      *os.File                     // log file; nil: none
	logFailed func(name string, err error) // called at most once, from the goroutine of copy

	dropped atomic.Bool // discard all further output

	// The fields below belong to the goroutine of copy.
	out         []byte
	head        lineHead
	deadline    bool          // r has a read deadline
	unfinished  bool          // the last line has no newline yet; counted in the sink
	shown       bool          // the beginning of the unfinished line was written
	length      int           // bytes written of the unfinished line
	turnExpired bool          // other streams no longer wait for this line
	holdsTurn   bool          // holds the turn, in the middle of a long line
	turnIdle    time.Duration // time spent waiting for the rank while holding the turn
	turnBytes   int           // bytes written while holding the turn
	pause       time.Duration // until the next call of onIdle
}

// copy forwards r to the sink until every process that holds the write end has closed it, or drop
// is called. It runs in a goroutine of its own, and blocks while other streams of the sink hold the
// turn. Write errors do not end it.
func (s *stream) copy() {
	defer s.r.Close()
	buf := make([]byte, maxHeldLine)
	n := 0 // bytes held back at the beginning of buf
	s.pause = s.sink.promptDelay
	for {
		s.setDeadline(n > 0 || s.holdsTurn)
		begin := time.Now()
		m, err := s.r.Read(buf[n:])
		if s.holdsTurn {
			s.turnIdle += time.Since(begin)
		}
		if m > 0 {
			s.log(buf[n : n+m])
			s.head.write(buf[n:n+m], s.tail)
			s.pause = s.sink.promptDelay
			n = s.forward(buf, n+m)
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			n = s.onIdle(buf[:n])
		default:
			s.finish(buf[:n])
			return
		}
	}
}

// setDeadline sets or clears the read deadline. On systems whose pipes have no
// deadlines, unfinished lines are held back until they end.
func (s *stream) setDeadline(on bool) {
	switch {
	case on:
		_ = s.r.SetReadDeadline(time.Now().Add(s.pause))
	case s.deadline:
		_ = s.r.SetReadDeadline(time.Time{})
	}
	s.deadline = on
}

// forward writes the part of buf[:n] that need not be held back. It moves the rest to
// the beginning of buf and returns its length.
func (s *stream) forward(buf []byte, n int) (left int) {
	if end := bytes.LastIndexByte(buf[:n], '\n') + 1; end > 0 {
		s.acquireTurn()
		s.write(buf[:end], false)
		s.shown, s.turnExpired, s.length = false, false, 0
		n = copy(buf, buf[end:n])
	}
	s.setUnfinished(n > 0 || s.shown)
	switch {
	case n == 0:
	case s.holdsTurn:
		n = s.extend(buf[:n])
	case s.shown:
		// The data continues the shown line, unless another stream has written since.
		if s.acquireTurn(); s.sink.open == s {
			n = s.extend(buf[:n])
		} else {
			s.sink.release()
			s.shown = false
		}
	}
	if n == len(buf) {
		s.acquireTurn()
		n = s.extend(buf)
	}
	return n
}

// extend writes a part of an unfinished line. The caller holds the turn, which extend
// keeps if the line is long. It returns the bytes left, which is 0.
func (s *stream) extend(data []byte) (left int) {
	if !s.holdsTurn {
		s.turnIdle, s.turnBytes = 0, 0
	}
	s.length += len(data)
	s.turnBytes += len(data)
	s.write(data, s.length >= maxHeldLine && !s.turnExpired && (s.turnBytes < maxTurnBytes || !s.sink.hasWaiters()))
	s.shown = true
	return 0
}

// onIdle is called by copy when the rank has printed nothing for a while. It ends a turn that was
// idle for too long, shows the unfinished line, or doubles the pause. It returns how many bytes
// remain held back.
func (s *stream) onIdle(line []byte) (left int) {
	switch {
	case s.holdsTurn:
		if s.turnIdle >= s.sink.maxTurnIdle {
			s.holdsTurn, s.turnExpired = false, true
			s.sink.release()
		}
		return 0
	case s.prompt || s.sink.addUnfinished(0) == 1:
		s.acquireTurn()
		return s.extend(line)
	}
	s.pause = min(2*s.pause, maxPromptDelay)
	return len(line)
}

// finish writes the rest of the output and ends its last line.
func (s *stream) finish(rest []byte) {
	s.head.end(s.tail)
	s.setUnfinished(false)
	if s.acquireTurn(); len(rest) > 0 || s.sink.open == s {
		s.write(append(rest, '\n'), false)
	} else {
		s.sink.release()
	}
	if s.file != nil {
		if err := s.file.Close(); err != nil {
			s.dropLog(err)
		}
	}
}

// acquireTurn waits for the turn, unless the stream holds it.
func (s *stream) acquireTurn() {
	if !s.holdsTurn {
		s.sink.acquire()
	}
}

// write writes data, which may end within a line. The caller holds the turn. write
// releases it, unless hold is set and data ends within a line.
func (s *stream) write(data []byte, hold bool) {
	begins := s.sink.open != s
	if begins {
		s.sink.endLine()
	}
	s.out = s.out[:0]
	for len(data) > 0 {
		n := bytes.IndexByte(data, '\n') + 1
		ends := n > 0
		if !ends {
			n = len(data)
		}
		if begins {
			s.out = append(s.out, s.prefix...)
		}
		s.out = append(s.out, data[:n]...)
		begins, data = ends, data[n:]
	}
	s.send(s.out)
	if s.sink.open = s; begins {
		s.sink.open = nil
	}
	if s.holdsTurn = hold && !begins; !s.holdsTurn {
		s.sink.release()
	}
}

// send ignores write errors: a reader that has exited must not stop the ranks.
func (s *stream) send(data []byte) {
	if !s.dropped.Load() {
		_, _ = s.w.Write(data)
	}
}

// setUnfinished tells the sink whether the last line has no newline yet.
func (s *stream) setUnfinished(is bool) {
	switch {
	case is && !s.unfinished:
		s.sink.addUnfinished(1)
	case !is && s.unfinished:
		s.sink.addUnfinished(-1)
	}
	s.unfinished = is
}

// log writes to the log file. After an error it closes the file, so that the file has
// no gap.
func (s *stream) log(data []byte) {
	if s.file == nil {
		return
	}
	if _, err := s.file.Write(data); err != nil {
		_ = s.file.Close() // only the write error matters
		s.dropLog(err)
	}
}

func (s *stream) dropLog(err error) {
	name := s.file.Name()
	s.file = nil
	s.logFailed(name, err)
}

// drop discards all further output. A Write that is in progress may still finish.
func (s *stream) drop() {
	s.dropped.Store(true)
	_ = s.r.Close()
}
