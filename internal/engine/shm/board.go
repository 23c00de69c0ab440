package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
)

const (
	// lineBytes keeps words that different ranks wait for apart, in bytes. It is
	// two cache lines, because processors prefetch lines in pairs.
	lineBytes = 128
	// slotsPerBoard is the number of operations by which a rank that waits for no
	// other rank (the root of a Broadcast) can be ahead of the slowest rank.
	slotsPerBoard = 4
)

// A board is the memory through which one rank publishes to the others. Only the
// owner of the board writes it; all other ranks read it. It holds no pointers, so
// it can be in a segment that processes map at different addresses.
//
// Memory ordering: every word is stored atomically after the data that it
// announces, and loaded atomically before that data is read. A rank that sees a
// word's value therefore sees all data that the owner wrote before it.
type board struct {
	base      unsafe.Pointer
	slotBytes int // bytes of one slot
}

// header is the beginning of a slot: one cache line. The name, if there is one, and
// data that is too large for the tail follow it.
type header struct {
	step atomic.Uint64 // step whose operation the slot holds; written last
	sig  engine.Sig
	n    int64 // elements of data in the slot, or direct, windowed (or less), remote
	tail [24]byte
}

// direct, as header.n, says that the other ranks read the data from the rank's own
// buffers.
const direct = -1

const headerBytes = int(unsafe.Sizeof(header{}))

// boardBytes returns the sizes, in bytes, of a board and of one slot whose data
// area has small bytes.
func boardBytes(small int) (board, slot int) {
	slot = (2*headerBytes + small + lineBytes - 1) / lineBytes * lineBytes // 2*headerBytes: see dataAfterHeader
	return numWords*lineBytes + slotsPerBoard*slot, slot
}

// newBoard returns a board in memory of this process.
func newBoard(small int) board {
	bytes, slot := boardBytes(small)
	mem := make([]byte, bytes+lineBytes)
	base := unsafe.Pointer(unsafe.SliceData(mem))
	skip := -uintptr(base) & (lineBytes - 1)
	return board{unsafe.Add(base, skip), slot}
}

func (b board) word(i int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(b.base, i*lineBytes)) }

// done is the last step of which this rank has read all data. Every rank reads it
// before it reuses a slot or returns a buffer.
func (b board) done() *atomic.Uint64 { return b.word(0) }

// progress counts this rank's reduced pieces or windows in a large AllReduce; the
// upper bits are the call's number (see pieceBits). The ranks that copy the results
// read it.
func (b board) progress() *atomic.Uint64 { return b.word(1) }

// left is 1 when the rank makes no more calls. Every wait for a word of this rank
// also watches left.
func (b board) left() *atomic.Uint64 { return b.word(2) }

// exitReason is why the rank left. The owner writes it before left; other ranks
// read it after left is 1.
func (b board) exitReason() *engine.Farewell {
	return (*engine.Farewell)(unsafe.Add(b.base, 2*lineBytes+8))
}

// reading is 1 while this rank may read other ranks' buffers in the same process. A
// rank whose operation fails waits for zero before it returns; see startReading.
func (b board) reading() *atomic.Uint64 { return b.word(3) }

// staged counts the windows that this rank has filled; the upper bits are the
// call's number. The ranks that empty the windows read it. See windows.go.
func (b board) staged() *atomic.Uint64 { return b.word(4) }

// taken counts the windows of other ranks that this rank has emptied; the upper
// bits are the call's number. The ranks that fill the windows read it.
func (b board) taken() *atomic.Uint64 { return b.word(5) }

// sleeping is the number of this rank's waiters that sleep in the kernel until a
// word of another process changes. A process that stores a word reads it to decide
// about a wakeup.
func (b board) sleeping() *atomic.Uint64 { return b.word(6) }

// withdrawn is 1 when this rank's caller may overwrite buffers that other ranks
// were allowed to read. Ranks that read such buffers load it afterwards; see
// checkNotWithdrawn.
func (b board) withdrawn() *atomic.Uint64 { return b.word(7) }

// request is this rank's request for bytes of a buffer that it cannot read; see
// serve.go. It shares a line with withdrawn, which a rank that reads others'
// buffers loads anyway.
func (b board) request() *request { return (*request)(unsafe.Add(b.base, 7*lineBytes+8)) }

// numWords is the number of lines with words before the slots of a board.
const numWords = 8

// slot returns the slot of a step. Consecutive steps use the slots in turn.
func (b board) slot(step uint64) *header {
	return (*header)(unsafe.Add(b.base, numWords*lineBytes+int(step%slotsPerBoard)*b.slotBytes))
}

// last returns the newest operation on the board, or nil if there is none.
func (b board) last() *header {
	var newest *header
	for i := range uint64(slotsPerBoard) {
		if h := b.slot(i); h.step.Load() > 0 && (newest == nil || h.step.Load() > newest.step.Load()) {
			newest = h
		}
	}
	return newest
}

// data returns the address of the slot's data.
func (h *header) data() unsafe.Pointer {
	if h.inTail() {
		return unsafe.Pointer(&h.tail)
	}
	return h.dataAfterHeader(&h.sig)
}

// inTail reports whether the data is in the header's tail.
func (h *header) inTail() bool {
	size := h.sig.Type.Size()
	if size == 0 {
		size = 8 // Split has 8-byte elements and no type in its fingerprint
	}
	return h.n >= 0 && int(h.n)*size <= len(h.tail)
}

// dataAfterHeader returns the address of data that does not fit into the tail. The
// data begins at a cache line of its own, behind the name if s has one.
func (h *header) dataAfterHeader(s *engine.Sig) unsafe.Pointer {
	if s.Name != 0 {
		return h.at(2 * headerBytes)
	}
	return h.at(headerBytes)
}

// call returns the description of the slot's operation, for errors.
func (h *header) call() engine.CallInfo { return readCall(&h.sig, h.at(headerBytes)) }

// storedLabelBytes returns how many bytes the Label of an operation takes behind
// its fingerprint.
func storedLabelBytes(s *engine.Sig) int {
	if s.Name == 0 {
		return 0
	}
	return engine.LabelBytes
}

func labelAt(p unsafe.Pointer) *engine.Label { return (*engine.Label)(p) }

// readCall returns the description of a fingerprint whose Label, if it has one, is
// at p.
func readCall(s *engine.Sig, p unsafe.Pointer) engine.CallInfo {
	if s.Name == 0 {
		return engine.CallInfo{Sig: *s}
	}
	label := *labelAt(p)
	return engine.ReadCall(*s, &label)
}
