package store

import (
	"bufio"
	"container/list"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// A session is the server's side of one connection. One goroutine reads requests and
// answers them. While a request waits for keys, a second goroutine waits and answers;
// the first keeps reading, because the client may cancel the request.
type session struct {
	server   *Server
	raw      net.Conn
	gate     *authGate     // on top of raw
	conn     net.Conn      // gate, or TLS on top of it
	host     string        // the client's IP address
	accepted time.Time     // when the connection was accepted
	element  *list.Element // in Server.pending, nil if not in it; guarded by Server.mu
	evicted  bool          // closed to make room; guarded by Server.mu

	// The reading goroutine owns the fields below.
	in         *bufio.Reader
	out        *bufio.Writer
	decoder    decoder
	waiter     *waiter       // of the last request, if it had to wait; nil: none
	proceeded  chan struct{} // closed when the next request has come, or the connection has ended
	waiterDone chan struct{} // closed when the waiting goroutine has ended
}

// popTime is how long after a wait for a queue the server expects the QUEUE_POP. A client
// that is slower may find the queue empty.
const popTime = time.Second

func newSession(s *Server, conn net.Conn) *session {
	g := &authGate{Conn: conn, left: unprovenBytes}
	return &session{server: s, raw: conn, gate: g, conn: g, host: hostOf(conn), accepted: time.Now()}
}

// serve runs until the connection ends or the client breaks the protocol. It always
// returns an error.
func (c *session) serve() error {
	s := c.server
	_ = c.raw.SetDeadline(time.Now().Add(min(s.config.Limits.RequestTime, proofTime)))
	if s.tls != nil {
		t := tls.Server(c.gate, s.tls)
		if err := t.Handshake(); err != nil {
			if notTLS, ok := errors.AsType[tls.RecordHeaderError](err); ok {
				return fmt.Errorf("the client does not speak TLS, which this store requires: %s", notTLS.Msg)
			}
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
				return explainDeadline(err)
			}
			return fmt.Errorf("no encrypted connection, it may lack the job's certificate: %v", err) // %v: cutOff must not match it
		}
		c.conn = t
	}
	c.in = bufio.NewReader(c.conn)
	c.out = bufio.NewWriter(deadlineWriter{c.conn, s.config.Limits.RequestTime})
	if !s.config.Plain {
		if err := serverHandshake(c.conn, c.in, s.config.Secret); err != nil {
			return explainDeadline(err)
		}
	}
	c.decoder = decoder{r: c.in, limits: &s.config.Limits, budget: s.state.budget}
	if err := c.validate(); err != nil {
		return explainDeadline(err)
	}
	c.gate.open = true
	s.mu.Lock()
	s.authenticated(c)
	s.mu.Unlock()
	for {
		if err := c.next(); err != nil {
			return explainDeadline(err)
		}
	}
}

// explainDeadline replaces the error of a deadline by its reason.
func explainDeadline(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the client was too slow in the middle of a request")
	}
	return err
}

// validate reads the first request, which must be VALIDATE.
func (c *session) validate() error {
	first, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	switch {
	case first == mark[0]:
		return statusPlain
	case first != byte(idValidate):
		return unknownStart(first)
	}
	req := request{id: idValidate}
	if err := c.decoder.read(&req); err != nil {
		return err
	}
	if req.word != magic {
		// In PyTorch 1.x the id of VALIDATE is SET.
		return statusOld
	}
	return nil
}

// next reads and answers one request. Any error ends the session.
func (c *session) next() error {
	// Between requests a client may be idle without limit.
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	first, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(c.server.config.Limits.RequestTime)); err != nil {
		return err
	}
	req := request{id: id(first)}
	defer c.decoder.done()
	if err := c.decoder.read(&req); err != nil {
		return err
	}
	if err := c.endWait(req.id); err != nil {
		return err
	}
	if err := c.answer(&req); err != nil {
		return err
	}
	return c.out.Flush()
}

// endWait ends the wait of the previous request, if it still waits. Only CANCEL_WAIT is
// allowed then; any other request is an error. If the wait was complete and the client does
// not pop, another client may take the value.
func (c *session) endWait(next id) error {
	if c.waiter == nil {
		return nil
	}
	waiting := c.server.state.cancel(c.waiter)
	close(c.proceeded)
	<-c.waiterDone
	if !waiting && next != idPop {
		c.server.state.rewake(c.waiter)
	}
	c.waiter = nil
	if waiting && next != idCancelWait {
		return kindf(ErrAnswer, "it sent %v while another request waited", next)
	}
	return nil
}

// end closes the connection and frees what the session holds in the state.
func (c *session) end() {
	_ = c.raw.Close()
	_ = c.endWait(idCancelWait)
}

// answer applies a request to the state and writes the answer to out. An error, such as
// that of a limit, ends the session.
func (c *session) answer(req *request) error {
	s := c.server.state
	switch req.id {
	case idSet:
		return s.set(req.keys[0], req.values[0])
	case idCompareSet:
		value, err := s.compareAndSet(req.keys[0], req.values[0], req.values[1])
		if err != nil {
			return err
		}
		return c.value(value)
	case idGet:
		return c.value(s.get(req.keys[0]))
	case idAdd:
		n, err := s.add(req.keys[0], req.number)
		if err != nil {
			return err
		}
		return c.number(n)
	case idCheck:
		if s.check(req.keys) {
			return c.out.WriteByte(answerReady)
		}
		return c.out.WriteByte(answerNotReady)
	case idWait:
		w, err := s.wait(req.keys, len(req.keys) == 1)
		return c.wait(w, err)
	case idNumKeys:
		return c.number(s.size())
	case idDelete:
		if s.delete(req.keys[0]) {
			return c.number(1)
		}
		return c.number(0)
	case idAppend:
		return s.append(req.keys[0], req.values[0])
	case idMultiGet:
		for _, k := range req.keys {
			if err := c.value(s.get(k)); err != nil {
				return err
			}
		}
		return nil
	case idMultiSet:
		for i, k := range req.keys {
			if err := s.set(k, req.values[i]); err != nil {
				return err
			}
		}
		return nil
	case idCancelWait:
		return c.out.WriteByte(answerCanceled)
	case idPing:
		return binary.Write(c.out, binary.LittleEndian, req.word)
	case idPush:
		return s.push(req.keys[0], req.values[0])
	case idPop:
		value, n := s.pop(req.keys[0])
		if err := c.number(n); err != nil || n == 0 {
			return err
		}
		return c.value(value)
	case idQueueLen:
		return c.number(s.queueLen(req.keys[0]))
	case idList:
		return c.list(s.list())
	case idBarrier:
		w, err := s.barrier(req.keys[0], req.number)
		return c.wait(w, err)
	}
	return kindf(ErrAnswer, "it sent %v a second time", req.id) // VALIDATE: the decoder refuses unknown ids
}

func (c *session) number(n int64) error {
	_, err := c.out.Write(appendNumber(c.out.AvailableBuffer(), n))
	return err
}

func (c *session) value(v []byte) error {
	if err := c.number(int64(len(v))); err != nil {
		return err
	}
	_, err := c.out.Write(v)
	return err
}

func (c *session) list(keys []string) error {
	if err := c.number(int64(len(keys))); err != nil {
		return err
	}
	for _, k := range keys {
		if err := c.number(int64(len(k))); err != nil {
			return err
		}
		if _, err := c.out.WriteString(k); err != nil {
			return err
		}
	}
	return nil
}

// wait answers a waiting request: now if w is nil, else when w becomes ready, from a
// goroutine of its own.
func (c *session) wait(w *waiter, err error) error {
	if err != nil {
		return err
	}
	if w == nil {
		return c.out.WriteByte(answerStop)
	}
	proceeded, done := make(chan struct{}), make(chan struct{})
	c.waiter, c.proceeded, c.waiterDone = w, proceeded, done
	out := deadlineWriter{c.conn, c.server.config.Limits.RequestTime}
	c.server.wg.Go(func() {
		defer close(done)
		<-w.ready
		if w.canceled {
			return
		}
		// If the write fails, the reading goroutine fails too and reports it.
		_, _ = out.Write([]byte{answerStop})
		// The protocol does not show whether the client pops. If it does not, another one may.
		timer := time.NewTimer(popTime)
		defer timer.Stop()
		select {
		case <-proceeded:
		case <-timer.C:
			c.server.state.rewake(w)
		}
	})
	return nil
}

// A deadlineWriter is a connection whose writes have a time limit.
type deadlineWriter struct {
	conn    net.Conn
	timeout time.Duration // for one write
}

func (p deadlineWriter) Write(b []byte) (int, error) {
	if err := p.conn.SetWriteDeadline(time.Now().Add(p.timeout)); err != nil {
		return 0, err
	}
	return p.conn.Write(b)
}
