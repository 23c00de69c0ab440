package shm

import (
	"errors"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// The system may refuse to copy from a living process: the buffer is memory that it
// shows to no other process (memfd_secret, mappings of drivers), or the process has become
// undumpable. The reader then requests the bytes from the buffer's owner. The request is
// on the reader's board. The owner, which stays in Run until all readers are done, answers
// whenever it waits: it copies the bytes into a window of its own segment, from where
// the reader takes them. A request lasts until it is answered, the owner leaves, or
// the group fails, so an owner that dies is reported as in any other wait.
//
// From the first request on, no rank announces buffers to be read in this way.
// Ranks find that out at different steps, which does no harm: a reader follows what each
// owner has announced in its slot.

// A request is what a rank asks of another. The reader writes the other fields only while
// word does not name an owner that has yet to answer.
type request struct {
	// word is the request's number, in the upper bits, and the owner's rank plus one. With
	// zero for the owner it says that the reader has taken its last answer. The number
	// grows; zero: this rank has never requested anything.
	word  atomic.Uint64
	step  uint64 // in which the owner announced the buffer
	off   int64  // bytes from the beginning of the buffer
	bytes int64  // at most serviceBytes
	errno int64  // why the system refused; zero: not known
}

// ownerBits is how many bits of a request's word name the owner.
const ownerBits = 24

// serviceBytes is the size of the window through which a rank answers requests.
const serviceBytes = 64 << 10

// A service is where a rank answers requests: a word for each reader, which holds the number
// of its last request that was answered, and a window. The window holds one answer until its
// reader has changed its request.
type serviceArea struct {
	base   unsafe.Pointer
	window unsafe.Pointer
}

func newServiceArea(base unsafe.Pointer, ranks int) serviceArea {
	return serviceArea{base, unsafe.Add(base, answersBytes(ranks))}
}

// answersBytes is the size of the words.
func answersBytes(ranks int) int { return (8*ranks + lineBytes - 1) / lineBytes * lineBytes }

// answered is the number of rank r's last request that was answered.
func (s serviceArea) answered(r int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(s.base, 8*r)) }

// readable reports whether ranks of the group may still announce buffers for others to
// read by the system.
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

// requestFrom copies bytes of rank r's buffer of the present step, beginning at off, with
// the help of r, because the system refused for the reason why.
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

// serve answers a request of another rank, if there is one, and reports whether it has. It
// is called while this rank waits.
func (e *Engine) serve() (bool, error) {
	if !e.vmreadExposed {
		return false, nil
	}
	if e.servedRequest != 0 {
		if e.g.boards[e.servedRank].request().word.Load() == e.servedRequest {
			return false, nil // the reader has not taken it yet
		}
		e.servedRequest = 0
	}
	n := len(e.g.boards)
	for i := range n {
		r := (e.servedRank + 1 + i) % n // not always the same one first
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
