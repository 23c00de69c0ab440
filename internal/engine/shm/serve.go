package shm

import (
	"errors"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// The kernel may refuse to copy from a live process: the buffer is memory that it
// shows to no other process (memfd_secret, mappings of drivers), or the process has
// become undumpable. The reader then requests the bytes from the buffer's owner.
// The request is on the reader's board. The owner stays in Run until all readers
// are done, and answers while it waits. It copies the bytes into a window of its
// own segment, and the reader copies them from there. A reader waits until its
// request is answered, the owner leaves, or the group fails, so the death of an
// owner is reported as in any other wait.
//
// After the first request, no rank announces buffers for ReadProcess any more.
// Ranks notice the request at different steps. That is correct, because a reader
// follows what each owner has announced in its slot.

// A request is what a rank asks of the owner of a buffer. The reader writes it; the
// owner reads it. The reader stores word last, and changes the other fields only
// while no answer is outstanding.
type request struct {
	// word holds the request's number in the upper bits and 1 + the owner's rank in
	// the lower ownerBits. A zero in the lower bits says that the reader has copied
	// its last answer. The number only grows. A zero word: this rank has never made
	// a request.
	word  atomic.Uint64
	step  uint64 // step in which the owner announced the buffer
	off   int64  // offset in the buffer, in bytes
	bytes int64  // at most serviceBytes
	errno int64  // why the kernel refused; zero: unknown
}

// ownerBits is the number of bits in a request's word that hold the owner.
const ownerBits = 24

// serviceBytes is the size, in bytes, of the window through which a rank answers
// requests.
const serviceBytes = 64 << 10

// A serviceArea is the part of a rank's segment for its answers: one word for each
// reader, with the number of its last answered request, and a window. The owner
// writes the area. It stores the word after the bytes of the window. The window
// holds one answer until its reader changes the request's word.
type serviceArea struct {
	base   unsafe.Pointer
	window unsafe.Pointer
}

// newServiceArea returns the service area at base.
func newServiceArea(base unsafe.Pointer, ranks int) serviceArea {
	return serviceArea{base, unsafe.Add(base, answersBytes(ranks))}
}

// answersBytes returns the size of the words, in bytes.
func answersBytes(ranks int) int { return (8*ranks + lineBytes - 1) / lineBytes * lineBytes }

// answered returns the word with the number of rank r's last answered request.
func (s serviceArea) answered(r int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(s.base, 8*r)) }

// readable reports whether buffers may still be announced for ReadProcess. It is
// false once any rank has made a request.
func (e *Engine) readable() bool {
	if e.g.shared.ReadProcess == nil || e.unreadable {
		return false
	}
	for _, b := range e.g.boards {
		if b.request().word.Load() != 0 {
			e.unreadable = true
			return false
		}
	}
	return true
}

// requestFrom copies bytes from offset off of the buffer that rank r has announced
// in the current step. Rank r helps, because the kernel refused with the error why.
func (e *Engine) requestFrom(r int, dst unsafe.Pointer, off, bytes int, why error) error {
	q, s := e.board.request(), e.g.services[r]
	var errno syscall.Errno
	errors.As(why, &errno)
	for done := 0; done < bytes; {
		n := min(bytes-done, e.g.opt.service())
		q.step, q.off, q.bytes, q.errno = e.step, int64(off+done), int64(n), int64(errno)
		e.requests++
		e.storeWord(&q.word, e.requests<<ownerBits|uint64(r+1))
		if err := e.waitWord(s.answered(e.rank), r, e.requests); err != nil {
			return err
		}
		kernel.Copy(unsafe.Add(dst, done), s.window, n)
		done += n
	}
	e.requests++
	e.storeWord(&q.word, e.requests<<ownerBits)
	return nil
}

// serve answers one request of another rank, if there is any, and reports whether
// it did. The waiting goroutine in Run calls it, so it needs no lock.
func (e *Engine) serve() (bool, error) {
	if !e.vmreadExposed {
		return false, nil
	}
	if e.servedRequest != 0 {
		if e.g.boards[e.servedRank].request().word.Load() == e.servedRequest {
			return false, nil // the reader has not copied the answer yet
		}
		e.servedRequest = 0
	}
	n := len(e.g.boards)
	for i := range n {
		r := (e.servedRank + 1 + i) % n // round robin, so that no reader starves
		q := e.g.boards[r].request()
		word := q.word.Load()
		s := e.g.services[e.rank]
		if word&(1<<ownerBits-1) != uint64(e.rank+1) || s.answered(r).Load() == word>>ownerBits {
			continue
		}
		src := e.exposures[q.step%slotsPerBoard].src
		if q.off < 0 || q.bytes < 0 || q.bytes > serviceBytes || q.off > int64(src.Bytes())-q.bytes {
			return false, &engine.Failure{
				Kind: engine.ErrAborted, Op: e.op, Seq: e.seq, Rank: e.rank,
				Facts: engine.Facts{
					Event: engine.OutOfBounds, Sides: []engine.Side{{Rank: r, N: q.bytes}, {Rank: e.rank, N: int64(src.Bytes())}},
				},
			}
		}
		if f := e.g.shared.OnUnreadable; f != nil && !e.reported {
			f(r, syscall.Errno(q.errno))
		}
		e.reported = true
		kernel.Copy(s.window, unsafe.Add(src.Ptr, q.off), int(q.bytes))
		e.servedRequest, e.servedRank = word, r
		e.storeWord(s.answered(r), word>>ownerBits)
		return true, nil
	}
	return false, nil
}
