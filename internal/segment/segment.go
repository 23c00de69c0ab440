// Package segment makes memory that several processes of a host share: an anonymous file in memory
// (memfd) with one part per process. Every process maps the whole file once for reading, and its
// own part for writing. The file's size is sealed. Its descriptor is passed over unix sockets.
//
// A segment has no name in a file system, so nothing is left behind however a process ends. A
// process that receives the descriptor is proved to be on the same host.
package segment

import (
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// ErrUnsupported says that this system does not support segments.
var ErrUnsupported = errors.New("segment: not supported on this system")

// ErrGone says that the process that passes a segment has exited or closed its Listener.
var ErrGone = errors.New("segment: the other process has ended")

// A Segment is this process's mapping of the memory. Close must not be called concurrently with
// other methods.
type Segment struct {
	mem  []byte
	part int // bytes of one part, a multiple of the page size
	fd   int // -1: closed
}

// Part returns the address of process i's part, which is aligned to a page. Only process i may
// write there.
func (s *Segment) Part(i int) unsafe.Pointer { return unsafe.Pointer(&s.mem[i*s.part]) }

// Bytes returns the size of one part.
func (s *Segment) Bytes() int { return s.part }

// partBytes rounds the size of a part up to pages. It fails if all parts together exceed the
// address space.
func partBytes(parts, bytes, page int) (int, error) {
	if parts < 1 || bytes < 0 || bytes > math.MaxInt/parts-page {
		return 0, fmt.Errorf("segment: %d parts of %d bytes", parts, bytes)
	}
	return (max(bytes, 1) + page - 1) / page * page, nil
}
