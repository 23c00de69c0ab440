// Package segment makes memory that one process writes and others read:
// anonymous files in memory (memfd), sealed so that they can be neither resized
// nor mapped for writing by anybody else, and passed over unix sockets.
//
// A segment has no name in any file system, so nothing is left behind however a
// process ends. That its descriptor can be passed proves that two processes
// share a host.
package segment

import (
	"errors"
	"unsafe"
)

// ErrUnsupported says that this system has no such memory.
var ErrUnsupported = errors.New("segment: not supported on this system")

// ErrGone says that the process at the other end of a link has ended.
var ErrGone = errors.New("segment: the other process has ended")

// News is called with what is heard of processes on the other end of links: for
// each of them in order, by one goroutine. None of it may be nil.
type News struct {
	Note func(guest int, note []byte) // it has said something; see Link.Note
	Gone func(guest int)              // it has ended, and neither side had closed the link
}

// A Segment is mapped memory. The process that made it writes, the others read.
type Segment struct {
	mem []byte
	fd  int // -1 when closed
}

// Ptr is where the memory begins; it is aligned to a page.
func (s *Segment) Ptr() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s.mem)) }

// Len is its size in bytes.
func (s *Segment) Len() int { return len(s.mem) }
