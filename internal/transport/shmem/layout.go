package shmem

import (
	"sync/atomic"
	"unsafe"

	"github.com/tutti-go/tutti/internal/transport"
)

const (
	// lineBytes keeps memory of different writers and readers apart, in bytes. It is two cache
	// lines, because processors prefetch lines in pairs.
	lineBytes = 128
	cacheLine = 64
	pageBytes = 4096
)

// A header is what one rank writes for one other rank besides records: one cache line.
type header struct {
	completed atomic.Uint64 // the data of the peer's messages up to this one is taken
	consumed  atomic.Uint64 // number of the peer's records that this rank needs no more
	// bell is incremented when the peer has to be woken.
	bell atomic.Uint64

	// The stream of a message from the peer to this rank.
	request atomic.Uint64 // number of the stream that this rank reads; zero: none
	want    atomic.Uint64 // the message of that stream
	taken   atomic.Uint64 // chunks that this rank has read; see chunkCount

	// The stream of a message from this rank to the peer.
	filled atomic.Uint64 // chunks that this rank has filled; see chunkCount
	at     atomic.Uint64 // the chunks' place in this rank's part, after the first chunk
}

// sizes are the limits of a lane. All ranks of a group have the same.
type sizes struct {
	record  int                // bytes of a record, a multiple of 64
	entries int                // records of a ring, a power of two
	blocks  [numClasses]blocks // of the slab, by increasing size
	chunk   int                // bytes of a chunk
	chunks  int                // chunks of a stream
	streams int                // streams from one rank at a time
	slabMax int                // more bytes are read from the process, if possible
	readMin int                // fewer bytes are streamed rather than read from the process
}

// blocks are the blocks of one size in a slab.
type blocks struct{ bytes, count int }

const numClasses = 3

// defaultSizes returns the limits for a number of ranks. A part has one ring per rank, so records
// become smaller and fewer.
func defaultSizes(ranks int) sizes {
	s := sizes{
		record: 1088, entries: 32,
		blocks: [numClasses]blocks{{2 << 10, 64}, {4 << 10, 64}, {16 << 10, 16}},
		chunk:  64 << 10, chunks: 4, streams: 2, slabMax: 4 << 10,
	}
	switch {
	case ranks > 64:
		s.record, s.entries = 128, 8
	case ranks > 16:
		s.record, s.entries = 256, 8
	case ranks > 4:
		s.entries = 16
	}
	return s
}

// inline returns the most data, in bytes, that a record contains.
func (s *sizes) inline() int { return s.record - recordHeadBytes }

// A layout is the layout of a part. It begins with the word sleeping.
type layout struct {
	sizes
	ranks     int
	ringsAt   int
	slabAt    int
	streamsAt int
	bytes     int
}

func newLayout(ranks int, s sizes) layout {
	l := layout{sizes: s, ranks: ranks}
	l.ringsAt = lineBytes * (1 + ranks)
	l.slabAt = roundUp(l.ringsAt+ranks*s.entries*s.record, pageBytes)
	l.streamsAt = l.slabAt
	for _, b := range s.blocks {
		l.streamsAt += b.bytes * b.count
	}
	l.streamsAt = roundUp(l.streamsAt, pageBytes)
	l.bytes = l.streamsAt + s.streams*l.streamBytes()
	return l
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// streamBytes returns the size of the chunks of one stream, in bytes.
func (l *layout) streamBytes() int { return l.chunk * l.chunks }

// Bytes returns the size of a rank's part, in bytes. The memory is zero at the beginning.
func Bytes(ranks int) int {
	l := newLayout(ranks, defaultSizes(ranks))
	return l.bytes
}

// inSlab reports whether the bytes at an offset of a part are in the blocks of its slab.
func (l *layout) inSlab(offset, bytes int64) bool {
	return offset >= int64(l.slabAt) && offset <= int64(l.streamsAt) && bytes <= int64(l.streamsAt)-offset
}

// sleeping returns the word that is not zero while the owner of the part may sleep.
func sleeping(part unsafe.Pointer) *atomic.Uint64 { return (*atomic.Uint64)(part) }

// header returns what the owner of the part writes for a rank.
func (l *layout) header(part unsafe.Pointer, rank int) *header {
	return (*header)(unsafe.Add(part, lineBytes*(1+rank)))
}

// ring returns the records that the owner of the part writes for a rank.
func (l *layout) ring(part unsafe.Pointer, rank int) unsafe.Pointer {
	return unsafe.Add(part, l.ringsAt+rank*l.entries*l.record)
}

// A record is an entry of a ring. Data follows it.
type record struct {
	position atomic.Uint64 // one more than the number of records before it; written last
	meta     uint64        // see meta
	tag      int64
	// ready is the number of a message of the peer. If that message has the tag, the kind and the
	// length of this one, a receive that cannot be withdrawn waits for it. Zero: there is none.
	ready uint64
}

const recordHeadBytes = int(unsafe.Sizeof(record{}))

// minRecordBytes is the size of a record that every kind fits into, in bytes.
const minRecordBytes = (recordHeadBytes + transport.NoteBytes + 63) / 64 * 64

// data returns the address of the data of a record.
func (r *record) data() unsafe.Pointer { return unsafe.Add(unsafe.Pointer(r), recordHeadBytes) }

// Kinds of records.
const (
	kindInline = 1 + iota // a message; the data is its body
	kindSlab              // a message; the data is a place whose offset is in the sender's slab
	kindBuffer            // a message; the data is a place
	kindTaken             // a message of the peer is taken; the data is its number
	kindNote              // the data is a transport.Note
)

// A place says where the body of a message is.
type place struct {
	bytes  int64
	addr   uint64 // virtual address in the sender's process
	region uint64 // see Options.Locate; zero: none
	offset int64  // in the region, or in the sender's slab
}

const placeBytes = int(unsafe.Sizeof(place{}))

// meta returns the second word of a record: its kind, the kind of the message and the number of
// bytes of its data.
func meta(kind, messageKind uint8, bytes int) uint64 {
	return uint64(kind) | uint64(messageKind)<<8 | uint64(bytes)<<32
}

// watches is a flag in the second word of the record of a message: the sender polls the records of
// its peer until the message is taken.
const watches = 1 << 16

// chunkCount returns the word for a number of chunks of a stream. It contains the low half of the
// stream's number, so that no other stream is meant.
func chunkCount(stream uint64, chunks int) uint64 { return stream<<32 | uint64(uint32(chunks)) }
