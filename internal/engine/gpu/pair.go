package gpu

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/nccl"
)

// A pair carries the messages between this rank and another: a communicator of the two, whose
// messages NCCL matches in order, and a stream. For messages from this rank to itself it has only
// a stream.
type pair struct {
	comm   *nccl.Comm
	stream *cuda.Stream
	last   *transfer // the message that was started last
}

func (p *pair) close() error { return p.stream.Close() }

// pair returns the pair for messages to and from another rank, and creates it for their first
// message. Both ranks call it for the same message.
func (o *operation) pair(peer int) (*pair, error) {
	e := o.e
	e.mu.Lock()
	p := e.pairs[peer]
	e.mu.Unlock()
	if p != nil {
		return p, nil
	}
	id, err := o.exchangeID(peer)
	if err != nil {
		return nil, err
	}
	p = new(pair)
	place := 0
	if e.rank > peer {
		place = 1
	}
	if p.comm, err = o.open(id, place, 2); err != nil {
		return nil, err
	}
	if p.stream, err = e.dev.NewStream(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.pairs[peer] = p
	e.mu.Unlock()
	return p, nil
}

// exchangeID returns the id of the communicator of two ranks. The lower rank makes it and sends it to
// the higher. The message is posted under the operation's number. The timeout of the CPU engine bounds it.
// A failure of the group ends it as well: the end of the context with which the caller waits for the device
// message fails the group, and so does the lower rank's error if no id can be made.
func (o *operation) exchangeID(peer int) (nccl.UniqueID, error) {
	e := o.e
	m := engine.Message{Send: e.rank < peer, Peer: peer, Tag: idTag, Seq: o.seq}
	id := new(nccl.UniqueID)
	if m.Send {
		var err error
		if *id, err = e.lib.NewID(); err != nil {
			return *id, err
		}
	}
	m.Mem = memOf(id[:], kernel.Uint8)
	e.Engine.Post(&m)
	err := e.Engine.Finish(context.Background(), &m)
	return *id, err
}

// copyOn enqueues a copy of memory of the engine's device on a stream.
func (e *Engine) copyOn(s *cuda.Stream, dst, src engine.Mem) error {
	to, err1 := cuda.Wrap[byte](e.dev, uintptr(dst.Ptr), dst.Bytes())
	from, err2 := cuda.Wrap[byte](e.dev, uintptr(src.Ptr), src.Bytes())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return to.CopyOn(s, from)
}

// ownStream returns the stream for messages from this rank to itself.
func (e *Engine) ownStream() (*cuda.Stream, error) {
	e.mu.Lock()
	p := e.pairs[e.rank]
	e.mu.Unlock()
	if p != nil {
		return p.stream, nil
	}
	// Without the lock, which other goroutines need even if the driver does not return.
	s, err := e.dev.NewStream()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	p = e.pairs[e.rank]
	if p == nil {
		e.pairs[e.rank] = &pair{stream: s}
	}
	e.mu.Unlock()
	if p != nil { // another goroutine has created one meanwhile
		return p.stream, s.Close()
	}
	return s, nil
}
