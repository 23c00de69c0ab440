package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
)

const (
	// line keeps words that different ranks wait for apart. It is two cache
	// lines, because processors fetch them in pairs.
	lineBytes = 128
	// depth is how many operations a rank that waits for nobody (a broadcast's
	// root) may be ahead of the slowest.
	slotsPerBoard = 4
)

// A board is the memory by which one rank speaks to the others: it writes,
// they read. It holds no pointers.
type board struct {
	base      unsafe.Pointer
	slotBytes int // bytes of one slot
}

// header is the beginning of a slot, one cache line. The name, if there is one,
// and data that is too large for the tail follow it.
type header struct {
	step atomic.Uint64 // the step this slot speaks of; written last
	sig  engine.Sig
	n    int64 // elements of data in the slot; or direct, or one of those after it
	tail [24]byte
}

// direct in place of the number of elements says that the data is to be read
// from the rank's own buffers.
const direct = -1

const headerBytes = int(unsafe.Sizeof(header{}))

// boardBytes is the size of a board whose slots have room for small bytes of
// data.
func boardBytes(small int) (board, slot int) {
	slot = (2*headerBytes + small + lineBytes - 1) / lineBytes * lineBytes // see after
	return numWords*lineBytes + slotsPerBoard*slot, slot
}

// newBoard makes a board in memory of this process.
func newBoard(small int) board {
	bytes, slot := boardBytes(small)
	mem := make([]byte, bytes+lineBytes)
	base := unsafe.Pointer(unsafe.SliceData(mem))
	skip := -uintptr(base) & (lineBytes - 1)
	return board{unsafe.Add(base, skip), slot}
}

func (b board) word(i int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(b.base, i*lineBytes)) }

// done is the last step whose data this rank has finished reading.
func (b board) done() *atomic.Uint64 { return b.word(0) }

// progress counts the finished pieces of this rank's part; see parts.go.
func (b board) progress() *atomic.Uint64 { return b.word(1) }

// left is not zero when the rank makes no more calls.
func (b board) left() *atomic.Uint64 { return b.word(2) }

// why is what the rank said when it left. It is written before that.
func (b board) exitReason() *engine.Farewell {
	return (*engine.Farewell)(unsafe.Add(b.base, 2*lineBytes+8))
}

// reading is not zero while the rank may read other ranks' buffers.
func (b board) reading() *atomic.Uint64 { return b.word(3) }

// staged counts the windows that this rank has filled; see stream.go.
func (b board) staged() *atomic.Uint64 { return b.word(4) }

// taken counts the windows that this rank has emptied.
func (b board) taken() *atomic.Uint64 { return b.word(5) }

// sleeping counts this rank's waiters that sleep until a word of another
// process changes.
func (b board) sleeping() *atomic.Uint64 { return b.word(6) }

// withdrawn is not zero when the rank's caller may write into buffers that others
// were let read.
func (b board) withdrawn() *atomic.Uint64 { return b.word(7) }

// request is what the rank requests of others; see serve.go. It shares a line with
// withdrawn, which a rank that has read others' buffers looks at anyway.
func (b board) request() *request { return (*request)(unsafe.Add(b.base, 7*lineBytes+8)) }

// words is how many there are.
const numWords = 8

func (b board) slot(step uint64) *header {
	return (*header)(unsafe.Add(b.base, numWords*lineBytes+int(step%slotsPerBoard)*b.slotBytes))
}

// last returns the newest operation on the board, nil if there was none.
func (b board) last() *header {
	var newest *header
	for i := range uint64(slotsPerBoard) {
		if h := b.slot(i); h.step.Load() > 0 && (newest == nil || h.step.Load() > newest.step.Load()) {
			newest = h
		}
	}
	return newest
}

// data is where the slot's data begins.
func (h *header) data() unsafe.Pointer {
	if h.inTail() {
		return unsafe.Pointer(&h.tail)
	}
	return h.dataAfterHeader(&h.sig)
}

// small reports whether the data is in the tail.
func (h *header) inTail() bool {
	size := h.sig.Type.Size()
	if size == 0 {
		size = 8 // the elements of a Split, whose fingerprint has no type
	}
	return h.n >= 0 && int(h.n)*size <= len(h.tail)
}

// after is where data begins that is not in the tail: in a cache line of its own.
func (h *header) dataAfterHeader(s *engine.Sig) unsafe.Pointer {
	if s.Name != 0 {
		return h.at(2 * headerBytes)
	}
	return h.at(headerBytes)
}

// call describes the operation that the slot speaks of.
func (h *header) call() engine.CallInfo { return readCall(&h.sig, h.at(headerBytes)) }

// storedLabelBytes is how many bytes an operation's Label takes after its Sig.
func storedLabelBytes(s *engine.Sig) int {
	if s.Name == 0 {
		return 0
	}
	return engine.LabelBytes
}

func labelAt(p unsafe.Pointer) *engine.Label { return (*engine.Label)(p) }

// readCall describes the call with a Sig whose Label, if it has one, is at p.
func readCall(s *engine.Sig, p unsafe.Pointer) engine.CallInfo {
	if s.Name == 0 {
		return engine.CallInfo{Sig: *s}
	}
	label := *labelAt(p)
	return engine.ReadCall(*s, &label)
}
