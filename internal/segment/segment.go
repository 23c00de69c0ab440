// Package segment makes memory that several processes of a host share: an
// anonymous file in memory (memfd) with a part for each process. Every process
// maps the whole file once, for reading, and its own part for writing. The file's
// size is sealed. Its descriptor is passed over unix sockets.
//
// A segment has no name in any file system, so nothing is left behind however a
// process ends. That its descriptor can be passed proves that two processes
// share a host.
package segment

import (
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// ErrUnsupported says that this system has no such memory.
var ErrUnsupported = errors.New("segment: not supported on this system")

// ErrGone says that the process that has a segment to pass has ended, or has
// closed its Listener.
var ErrGone = errors.New("segment: the other process has ended")

// A Segment is this process's mapping of the memory.
type Segment struct {
	mem  []byte
	part int // bytes of one part, a multiple of the page size
	fd   int // -1 when closed
}

// Part is where the part of process i begins; it is aligned to a page. Only
// process i can write there.
func (s *Segment) Part(i int) unsafe.Pointer { return unsafe.Pointer(&s.mem[i*s.part]) }

// Bytes is the size of one part.
func (s *Segment) Bytes() int { return s.part }

// partBytes rounds the size of a part up to pages. It fails if the parts together are
// larger than an address space.
func partBytes(parts, bytes, page int) (int, error) {
	if parts < 1 || bytes < 0 || bytes > math.MaxInt/parts-page {
		return 0, fmt.Errorf("segment: %d parts of %d bytes", parts, bytes)
	}
	return (max(bytes, 1) + page - 1) / page * page, nil
}
