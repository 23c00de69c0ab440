package tcp

import (
	"slices"
	"unsafe"

	"github.com/tutti-go/tutti/internal/race"
	"github.com/tutti-go/tutti/internal/transport"
)

// maxTurnBytes bounds what one call of writeOut or readIn moves, so that other peers get a turn.
const maxTurnBytes = 4 << 20

// hasOutput reports whether there is something to write.
func (p *peerMessages) hasOutput() bool { return p.out.len() > 0 || p.midHeader() }

// midHeader reports whether a header or body is partly written.
func (p *peerMessages) midHeader() bool {
	s := &p.link.out
	return len(s.head)+len(s.body) > 0 || !p.link.flushed()
}

// writeOut writes until the socket is full, maxTurnBytes are written or nothing is left. It reports whether
// it wrote anything. An error means that the connection is lost. messenger.mu is held.
func (p *peerMessages) writeOut() (bool, error) {
	any := false
	for moved := 0; p.err == nil && moved < maxTurnBytes; moved += headerBytes {
		if !p.midHeader() {
			if p.out.len() == 0 {
				return any, nil
			}
			p.startNext()
		}
		body := len(p.link.out.body)
		did, done, err := p.link.send()
		if err != nil {
			return any, err
		}
		if !did {
			return any, nil
		}
		any = true
		moved += body - len(p.link.out.body)
		if done {
			p.finishWritten()
		}
	}
	return any, nil
}

// startNext starts to write the first header of the queue, with the next piece of a body if it announces
// data. messenger.mu is held.
func (p *peerMessages) startNext() {
	w := p.out.pop()
	h := header{kind: w.kind, id: w.id}
	s := &p.link.out
	switch w.kind {
	case kindReady:
		h.elem, h.length, h.tag = w.state.msg.Kind, len(w.state.msg.Body), w.state.msg.Tag
		s.start(h, nil, nil)
	case kindNote:
		var head transport.Head
		copy(head[:], p.notes[0][:])
		p.notes = slices.Delete(p.notes, 0, 1)
		s.start(h, &head, nil)
	case kindData:
		body := w.state.msg.Body[w.state.moved:]
		body = body[:min(len(body), maxPieceBytes)]
		h.length = len(body)
		if p.messenger.m.l.opts.Verify {
			h.sum = checksum(nil, body)
		}
		s.start(h, nil, body)
		p.writing = w.state
		w.state.moved += len(body)
	default:
		s.start(h, nil, nil)
	}
}

// finishWritten completes a send whose last piece is written, or queues its next piece.
func (p *peerMessages) finishWritten() {
	x := p.writing
	if x == nil {
		return
	}
	p.writing = nil
	if x.moved == len(x.msg.Body) {
		p.messenger.finish(x, nil)
		return
	}
	p.out.push(outHeader{kindData, x.id, x})
}

// readIn reads until the socket is empty or maxTurnBytes are read. It reports whether it read anything. An
// error means that the connection is lost or damaged. messenger.mu is held.
func (p *peerMessages) readIn() (bool, error) {
	any := false
	for moved := 0; p.err == nil && moved < maxTurnBytes; moved += headerBytes {
		if p.reading != nil {
			n, err := p.readBody()
			if err != nil || n == 0 && p.reading != nil {
				return any, err
			}
			any = true
			moved += n
			continue
		}
		did, done, err := p.link.receive(0, 0)
		if err != nil || !did {
			return any, err
		}
		any = true
		if done {
			if err := p.handleHeader(); err != nil {
				return any, err
			}
			p.link.in.start(nil)
		}
	}
	return any, nil
}

// readBody reads the data of a message and completes the message at its last byte. A withdrawn message's data
// is read and dropped. A wrong checksum is an error. messenger.mu is held.
func (p *peerMessages) readBody() (int, error) {
	x := p.reading
	n := 0
	if p.pieceLeft > 0 {
		var to []byte
		if x.msg != nil {
			to = x.msg.Body[x.moved : x.moved+p.pieceLeft]
		} else {
			// The receive was withdrawn.
			if p.discard == nil {
				p.discard = make([]byte, 64<<10)
			}
			to = p.discard[:min(len(p.discard), p.pieceLeft)]
		}
		var err error
		if n, err = p.link.read(nil, to); err != nil {
			return 0, err
		}
		race.WriteRange(unsafe.Pointer(unsafe.SliceData(to)), n)
		p.pieceLeft -= n
		x.moved += n
	}
	if p.pieceLeft > 0 {
		return n, nil
	}
	p.reading = nil
	if x.msg != nil && p.pieceSum != 0 && checksum(nil, x.msg.Body[x.moved-p.pieceBytes:x.moved]) != p.pieceSum {
		return n, p.link.damaged()
	}
	if x.moved == x.length {
		delete(p.recvs, x.id)
		if x.msg != nil {
			p.messenger.finish(x, nil)
		}
	}
	return n, nil
}
