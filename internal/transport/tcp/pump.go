package tcp

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/race"
)

// burst bounds what one turn of one pair moves, so that others get theirs.
const burst = 4 << 20

// busy reports whether there is something to write.
func (p *pair) busy() bool { return p.out.len() > 0 || p.saying() }

// saying reports whether something is partly written.
func (p *pair) saying() bool {
	s := &p.link.out
	return len(s.head)+len(s.body) > 0 || !p.link.flushed()
}

// push writes until the socket is full or there is nothing left.
func (p *pair) push() (bool, error) {
	any := false
	for moved := 0; p.err == nil && moved < burst; moved += headerBytes {
		if !p.saying() {
			if p.out.len() == 0 {
				return any, nil
			}
			p.say()
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
			p.said()
		}
	}
	return any, nil
}

// say starts to write the first word.
func (p *pair) say() {
	w := p.out.pop()
	h := header{kind: w.kind, id: w.id}
	s := &p.link.out
	switch w.kind {
	case kindReady:
		h.length, h.tag = len(w.x.msg.Body), w.x.msg.Tag
		s.start(h, &w.x.msg.Head, nil)
	case kindData:
		body := w.x.msg.Body[w.x.at:]
		body = body[:min(len(body), piece)]
		h.length = len(body)
		if p.s.m.l.opts.Verify {
			h.sum = checksum(nil, body)
		}
		s.start(h, nil, body)
		p.writing = w.x
		w.x.at += len(body)
	default:
		s.start(h, nil, nil)
	}
}

// said follows up on a word that is written.
func (p *pair) said() {
	x := p.writing
	if x == nil {
		return
	}
	p.writing = nil
	if x.at == len(x.msg.Body) {
		p.close(x, nil)
		return
	}
	p.out.push(word{kindData, x.id, x})
}

// pull reads until the socket is empty or the turn is over.
func (p *pair) pull() (bool, error) {
	any := false
	for moved := 0; p.err == nil && moved < burst; moved += headerBytes {
		if p.reading != nil {
			n, err := p.read()
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
			if err := p.heard(); err != nil {
				return any, err
			}
			p.link.in.start(nil)
		}
	}
	return any, nil
}

// read reads the data of a message, and ends the message with its last byte.
func (p *pair) read() (int, error) {
	x := p.reading
	n := 0
	if p.left > 0 {
		var to []byte
		if x.msg != nil {
			to = x.msg.Body[x.at : x.at+p.left]
		} else {
			// The receive was given up.
			if p.sink == nil {
				p.sink = make([]byte, 64<<10)
			}
			to = p.sink[:min(len(p.sink), p.left)]
		}
		var err error
		if n, err = p.link.read(nil, to); err != nil {
			return 0, err
		}
		race.WriteRange(unsafe.Pointer(unsafe.SliceData(to)), n)
		p.left -= n
		x.at += n
	}
	if p.left > 0 {
		return n, nil
	}
	p.reading = nil
	if x.msg != nil && p.sum != 0 && checksum(nil, x.msg.Body[x.at-p.size:x.at]) != p.sum {
		return n, p.link.damaged()
	}
	if x.at == x.length {
		delete(p.recvs, x.id)
		if x.msg != nil {
			p.close(x, nil)
		}
	}
	return n, nil
}
