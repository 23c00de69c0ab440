package shmem

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/kernel"
)

// An incoming is the stream from a peer to this rank. There is one at a time.
type incoming struct {
	x      *state // the receive; nil: no stream
	stream uint64 // number of the last stream
	chunks int    // chunks that are read
}

// An outgoing is the stream from this rank to a peer. There is one at a time.
type outgoing struct {
	x      *state // the send; nil: no stream
	stream uint64
	at     int // offset of the chunks in this rank's part; zero: none are free
	filled int // chunks that are filled
	taken  int // chunks that the peer has read
}

// receivesStream reports whether x receives a stream.
func (x *state) receivesStream() bool { return x.peer != nil && x.peer.incoming.x == x }

// readStream requests a stream for receive x, or reads the chunks that are filled. It reports
// whether all data has arrived.
func (p *peer) readStream(x *state) (done bool, err error) {
	in := &p.incoming
	if in.x == nil {
		in.x, in.chunks = x, 0
		if in.stream++; uint32(in.stream) == 0 {
			in.stream++
		}
		publish(&p.out.want, x.from.id)
		publish(&p.out.taken, chunkCount(in.stream, 0))
		publish(&p.out.request, in.stream)
		p.ring()
		p.lane.grown = true
	}
	if in.x != x {
		return false, nil
	}
	l := &p.lane.layout
	total := chunksOf(x.m.Len, l.chunk)
	for filled := p.filledChunks(); in.chunks < filled; in.chunks++ {
		at := int(p.in.at.Load())
		if filled > total || filled > in.chunks+l.chunks || at < l.streamsAt || at > l.bytes-l.streamBytes() {
			p.corrupt("number of chunks", uint64(filled))
			return false, p.lost()
		}
		off := in.chunks * l.chunk
		kernel.Copy(unsafe.Pointer(&x.m.Body[off]), unsafe.Add(p.part, at+in.chunks%l.chunks*l.chunk), min(l.chunk, x.m.Len-off))
		publish(&p.out.taken, chunkCount(in.stream, in.chunks+1))
		p.ring()
		p.lane.showChanges()
	}
	if in.chunks < total {
		return false, nil
	}
	p.endIncoming()
	return true, nil
}

// chunksOf returns the number of chunks of a message.
func chunksOf(bytes, chunk int) int { return (bytes + chunk - 1) / chunk }

// filledChunks returns how many chunks of the incoming stream are filled.
func (p *peer) filledChunks() int {
	f := p.in.filled.Load()
	if uint32(f>>32) != uint32(p.incoming.stream) {
		return 0
	}
	return int(uint32(f))
}

// abortStream ends the incoming stream early.
func (p *peer) abortStream() {
	publish(&p.out.request, 0)
	p.ring()
	p.endIncoming()
}

// endIncoming lets another receive request a stream.
func (p *peer) endIncoming() {
	p.incoming.x = nil
	p.lane.wakeAll()
}

// pollStreams continues the streams with a peer.
func (p *peer) pollStreams() {
	in, s := p.in, &p.seen
	if f := in.filled.Load(); f != s.filled {
		s.filled = f
		if x := p.incoming.x; x != nil {
			x.signal()
		}
	}
	if r := in.request.Load(); r != s.request {
		s.request = r
		p.endOutgoing()
		if x := p.send(in.want.Load()); r != 0 && x != nil && x.m != nil {
			p.outgoing = outgoing{x: x, stream: r, at: p.lane.slab.takeStream()}
			x.m.Matched.Store(true)
		}
	}
	s.taken = in.taken.Load()
	p.writeStream()
}

// writeStream fills the free chunks of the outgoing stream.
func (p *peer) writeStream() {
	o := &p.outgoing
	if o.x == nil || o.at == 0 {
		return
	}
	if t := p.seen.taken; uint32(t>>32) == uint32(o.stream) {
		if int(uint32(t)) > o.filled {
			p.corrupt("number of chunks", t)
			return
		}
		o.taken = int(uint32(t))
	}
	l, body := &p.lane.layout, o.x.m.Body
	total := chunksOf(len(body), l.chunk)
	for ; o.filled < total && o.filled < o.taken+l.chunks; o.filled++ {
		off := o.filled * l.chunk
		kernel.Copy(unsafe.Add(p.lane.part, o.at+o.filled%l.chunks*l.chunk), unsafe.Pointer(&body[off]), min(l.chunk, len(body)-off))
		if o.filled == 0 {
			publish(&p.out.at, uint64(o.at))
		}
		publish(&p.out.filled, chunkCount(o.stream, o.filled+1))
		p.ring()
		p.lane.showChanges()
	}
	if o.taken == total {
		p.endOutgoing()
	}
}

// endOutgoing ends the outgoing stream. Another stream that waits for chunks begins.
func (p *peer) endOutgoing() {
	at := p.outgoing.at
	p.outgoing = outgoing{}
	if at == 0 {
		return
	}
	s := &p.lane.slab
	s.putStream(at)
	for _, o := range p.lane.others {
		if o.outgoing.x != nil && o.outgoing.at == 0 {
			o.outgoing.at = s.takeStream()
			o.writeStream()
			return
		}
	}
}
