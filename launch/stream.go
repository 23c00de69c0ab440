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
	// heldBack is how much of an unfinished line is held back until it ends, in
	// bytes. A longer line is passed on while it comes.
	heldBack = 64 << 10
	// quietTime is how long a rank prints nothing before its unfinished line is
	// shown: it may be a prompt.
	quietTime = 100 * time.Millisecond
	// quietMost is the longest time between two looks whether an unfinished line
	// may be shown.
	quietMost = time.Second
	// turnIdle is for how long, in all, other streams wait for a rank that pauses in
	// the middle of a long line, and turnBytes how much of that line they wait for.
	turnIdle  = time.Second
	turnBytes = 16 << 20
)

// A stream is one output of one rank. It passes on whole lines, each after the
// prefix, and nothing else changes: a line is never split while it comes, however
// long it is.
//
//   - The beginning of a line is held back until the line ends or is longer than
//     heldBack. A longer line is passed on piece by piece, and the stream keeps its
//     turn until the line ends, so that the others' lines come after it. They wait
//     with full pipes, not in memory, for turnIdle or turnBytes at most.
//   - An unfinished line is shown when the rank is quiet and no other stream of the
//     sink has one, or at once if it goes on with what was shown. If another stream
//     writes after that, a newline is put between, and the rest of the line gets
//     a prefix of its own. A rank that reads the standard input shows its
//     unfinished lines in any case.
//   - The last line of a rank ends, if necessary with a newline that the rank has
//     not printed.
//
// The log file has the bytes as the rank printed them.
type stream struct {
	r      *os.File
	w      io.Writer
	to     *sink
	prefix string
	prompt bool // unfinished lines are shown in any case
	tail   *tail

	file      *os.File                     // nil: none
	logFailed func(name string, err error) // is called once, from a goroutine of its own

	dropped atomic.Bool // nothing is written to w any more

	// What follows belongs to the goroutine of copy.
	out        []byte
	head       lineHead
	deadline   bool          // r has a read deadline
	unfinished bool          // the last line has no end yet; counted in the sink
	shown      bool          // the beginning of the unfinished line was written
	length     int           // bytes of the unfinished line that were written
	slow       bool          // others have waited for this line long enough
	holds      bool          // has the turn, in the middle of a long line
	idle       time.Duration // waited for the rank, since it holds the turn
	held       int           // bytes written since then
	pause      time.Duration // until the next look at an unfinished line
}

// copy runs until all processes that hold the other end have closed it.
func (s *stream) copy() {
	defer s.r.Close()
	buf := make([]byte, heldBack)
	n := 0 // bytes at the beginning of buf that are held back
	s.pause = s.to.quiet
	for {
		s.setDeadline(n > 0 || s.holds)
		begin := time.Now()
		m, err := s.r.Read(buf[n:])
		if s.holds {
			s.idle += time.Since(begin)
		}
		if m > 0 {
			s.log(buf[n : n+m])
			s.head.write(buf[n:n+m], s.tail)
			s.pause = s.to.quiet
			n = s.forward(buf, n+m)
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			n = s.look(buf[:n])
		default:
			s.finish(buf[:n])
			return
		}
	}
}

// setDeadline has the next read return after a while, or not. Where pipes have no
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

// forward passes on what need not be held back of the first n bytes of buf. It
// returns how many bytes are left at its beginning.
func (s *stream) forward(buf []byte, n int) (left int) {
	if end := bytes.LastIndexByte(buf[:n], '\n') + 1; end > 0 {
		s.take()
		s.write(buf[:end], false)
		s.shown, s.slow, s.length = false, false, 0
		n = copy(buf, buf[end:n])
	}
	s.setUnfinished(n > 0 || s.shown)
	switch {
	case n == 0:
	case s.holds:
		n = s.extend(buf[:n])
	case s.shown:
		// It goes on with what was shown, unless another stream has written since.
		if s.take(); s.to.open == s {
			n = s.extend(buf[:n])
		} else {
			s.to.release()
			s.shown = false
		}
	}
	if n == len(buf) {
		s.take()
		n = s.extend(buf)
	}
	return n
}

// extend writes a part of an unfinished line in this stream's turn. If the line is
// long, the turn is kept. It returns how many bytes are left, which is none.
func (s *stream) extend(data []byte) (left int) {
	if !s.holds {
		s.idle, s.held = 0, 0
	}
	s.length += len(data)
	s.held += len(data)
	s.write(data, s.length >= heldBack && !s.slow && (s.held < turnBytes || !s.to.awaited()))
	s.shown = true
	return 0
}

// look is called when the rank has printed nothing for a while. It returns how
// many of the bytes that are held back are left.
func (s *stream) look(line []byte) (left int) {
	switch {
	case s.holds:
		if s.idle >= s.to.turnIdle {
			s.holds, s.slow = false, true
			s.to.release()
		}
		return 0
	case s.prompt || s.to.count(0) == 1:
		s.take()
		return s.extend(line)
	}
	s.pause = min(2*s.pause, quietMost)
	return len(line)
}

// finish passes on the rest, and ends the line.
func (s *stream) finish(rest []byte) {
	s.head.end(s.tail)
	s.setUnfinished(false)
	if s.take(); len(rest) > 0 || s.to.open == s {
		s.write(append(rest, '\n'), false)
	} else {
		s.to.release()
	}
	if s.file != nil {
		if err := s.file.Close(); err != nil {
			s.logLost(err)
		}
	}
}

// take waits for the turn, unless the stream holds it.
func (s *stream) take() {
	if !s.holds {
		s.to.acquire()
	}
}

// write writes data in this stream's turn: lines, the last of which may have no
// end. The turn is passed on after it, or kept if hold is set and the line has
// no end.
func (s *stream) write(data []byte, hold bool) {
	begins := s.to.open != s
	if begins {
		s.to.endLine()
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
	if s.to.open = s; begins {
		s.to.open = nil
	}
	if s.holds = hold && !begins; !s.holds {
		s.to.release()
	}
}

// send drops what the Writer does not take: a reader that has exited must not stop
// the ranks.
func (s *stream) send(data []byte) {
	if !s.dropped.Load() {
		_, _ = s.w.Write(data)
	}
}

// setUnfinished tells the sink whether the last line has no end yet.
func (s *stream) setUnfinished(is bool) {
	switch {
	case is && !s.unfinished:
		s.to.count(1)
	case !is && s.unfinished:
		s.to.count(-1)
	}
	s.unfinished = is
}

// log writes to the log file. After an error the file ends there: it has no gap.
func (s *stream) log(data []byte) {
	if s.file == nil {
		return
	}
	if _, err := s.file.Write(data); err != nil {
		_ = s.file.Close() // the first error counts
		s.logLost(err)
	}
}

func (s *stream) logLost(err error) {
	name := s.file.Name()
	s.file = nil
	s.logFailed(name, err)
}

// drop ends the stream: nothing more is written to w, except by a Write that does
// not return.
func (s *stream) drop() {
	s.dropped.Store(true)
	_ = s.r.Close()
}
