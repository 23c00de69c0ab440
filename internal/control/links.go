package control

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/overlay"
)

const (
	// linkTime bounds the write of messages to one link. Messages for other ranks wait that long
	// for a rank that does not read. Its connection is then closed, and dialed again.
	linkTime = 200 * time.Millisecond
	// lingerIdle is how long a leaving rank 0 waits for the next departure. lingerTime bounds the
	// whole wait. See linger. The comment of tutti.Comm.Close counts lingerTime.
	lingerIdle = 50 * time.Millisecond
	lingerTime = time.Second
)

// A link is a connection with another rank after Join. Its conn is safe for concurrent use.
type link struct {
	*conn
	made    bool // this rank dialed it
	dropped bool // this rank sends nothing on it any more; guarded by Member.nodeMu
}

// A Dialer connects to another rank of the job and proves to it the number of this rank.
type Dialer func(ctx context.Context, rank int) (net.Conn, error)

// Reach allows this rank to connect to ranks other than rank 0. The caller calls it when all
// Gathers of Join are complete. Before Reach, a rank whose connection ends is lost.
func (m *Member) Reach(dial Dialer) {
	m.step(func(now time.Time) {
		m.dialer = dial
		m.node.Reach(now)
	})
}

// Accept adds a connection that another rank has made and authenticated. It closes nc if this rank
// has left.
func (m *Member) Accept(rank int, nc net.Conn) {
	if !m.step(func(now time.Time) { m.attach(now, rank, &link{conn: newConn(nc)}) }) {
		nc.Close()
	}
}

// startNode starts the node with the connections of Join, indexed by rank. The caller must not read
// messages from them before.
func (m *Member) startNode(conns []*conn) (links []*link) {
	m.nodeMu.Lock()
	defer m.nodeMu.Unlock()
	m.node.Begin()
	links = make([]*link, len(conns))
	for r, c := range conns {
		if c != nil {
			links[r] = &link{conn: c, made: m.cfg.Rank != 0}
			m.links[r] = []*link{links[r]}
			m.wg.Go(func() { c.sendHeartbeats(m.cfg.HostTimeout, c.readerDone) })
		}
	}
	m.timer = time.AfterFunc(time.Hour, func() { _ = m.step(m.node.Tick) })
	return links
}

// step runs f, which passes an input to the node, and performs the resulting actions, all with
// nodeMu held. It reports false and does nothing if this rank has left.
func (m *Member) step(f func(now time.Time)) bool {
	m.nodeMu.Lock()
	defer m.nodeMu.Unlock()
	if m.ctx.Err() != nil {
		return false
	}
	f(time.Now())
	for list := m.node.Take(); len(list) > 0; list = m.node.Take() {
		m.perform(list)
	}
	if next, due := m.node.Next(); due && m.timer != nil {
		m.timer.Reset(time.Until(next))
	}
	select {
	case m.stepped <- struct{}{}:
	default:
	}
	return true
}

// perform carries out actions in order. Consecutive messages to one rank leave in one write, before
// any other action is performed. The caller holds nodeMu, so that all groups are notified in the
// same order.
func (m *Member) perform(list []overlay.Action) {
	var out outbox
	for _, a := range list {
		if a.Do != overlay.Send {
			m.flush(&out)
		}
		switch a.Do {
		case overlay.Send:
			out.add(a.Rank, a.Message)
		case overlay.Dial:
			m.dial(a.Rank)
		case overlay.Unlink:
			m.drop(a.Rank)
		case overlay.Lose:
			m.lose(a.Ranks, a.Reason)
		case overlay.Depart:
			m.depart(a.Rank)
		case overlay.Fail:
			m.failGroup(a.Cause)
		case overlay.NotifyPosition:
			m.deliverPosition(a.Message)
		}
	}
	m.flush(&out)
}

// An outbox collects the encoded frames of one step by destination rank.
type outbox struct {
	last    *overlay.Message // the message encoded last; it may go to many ranks
	encoded []byte           // last, encoded; nil: it exceeds maxFrame and is not sent
	to      []outgoing
}

// outgoing holds the frames for one rank.
type outgoing struct {
	rank  int
	bytes []byte
}

// add appends a message to the frames for a rank.
func (o *outbox) add(rank int, message *overlay.Message) {
	if o.last != message {
		o.last = message
		o.encoded, _ = (&frame{Kind: control, Message: message}).encode()
	}
	i := slices.IndexFunc(o.to, func(g outgoing) bool { return g.rank == rank })
	if i < 0 {
		i = len(o.to)
		o.to = append(o.to, outgoing{rank: rank})
	}
	o.to[i].bytes = append(o.to[i].bytes, o.encoded...)
}

// flush writes the frames of the outbox, to each rank on its newest link. The caller holds nodeMu.
func (m *Member) flush(out *outbox) {
	for _, g := range out.to {
		if links := m.links[g.rank]; len(links) > 0 && len(g.bytes) > 0 {
			_ = links[len(links)-1].write(g.bytes, linkTime) // the reader notices the end of the connection
		}
	}
	out.to = out.to[:0]
}

// dial connects to a rank in a goroutine, which passes the result to the node. If this rank has
// left by then, the connection is closed. The caller holds nodeMu.
func (m *Member) dial(rank int) {
	m.wg.Go(func() {
		ctx, cancel := context.WithTimeout(m.ctx, overlay.DialTime)
		defer cancel()
		nc, err := m.dialer(ctx, rank)
		used := m.step(func(now time.Time) {
			if err != nil {
				m.node.DialFailed(now, rank, dialResult(err))
			} else {
				m.attach(now, rank, &link{conn: newConn(nc), made: true})
			}
		})
		if err == nil && !used {
			nc.Close()
		}
	})
}

// dialResult classifies the error of a dial: the rank has exited, is stopped, or its host is cut
// off.
func dialResult(err error) overlay.DialResult {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return overlay.CutOff
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return overlay.CutOff
		}
		return overlay.Unanswered
	}
	return overlay.Refused
}

// attach adds a link with a rank and starts its heartbeats and its reader. The caller holds nodeMu.
func (m *Member) attach(now time.Time, rank int, l *link) {
	m.links[rank] = append(m.links[rank], l)
	m.node.LinkUp(now, rank, l.made)
	m.wg.Go(func() { l.sendHeartbeats(m.cfg.HostTimeout, l.readerDone) })
	m.wg.Go(func() {
		f, err := l.receive(maxFrame)
		m.readLink(rank, l, f, err)
	})
}

// drop stops sending on the oldest link that this rank dialed, and sends Drop there. The other side
// closes the link when it reads Drop; messages that it sent before are still received. The caller
// holds nodeMu.
func (m *Member) drop(rank int) {
	for _, l := range m.links[rank] {
		if l.made {
			l.dropped = true
			m.detach(rank, l)
			m.dropped[l] = true
			if bytes, err := (&frame{Kind: control, Message: &overlay.Message{Kind: overlay.Drop}}).encode(); err == nil {
				_ = l.write(bytes, linkTime)
			}
			return
		}
	}
}

// detach removes a link from m.links. The caller holds nodeMu.
func (m *Member) detach(rank int, l *link) {
	m.links[rank] = slices.DeleteFunc(m.links[rank], func(o *link) bool { return o == l })
}

// readLink passes the frames of a link to the node until the link ends, beginning with f, the first
// frame. The link's reader goroutine runs it.
func (m *Member) readLink(rank int, l *link, f *frame, err error) {
	defer close(l.readerDone)
	defer l.Close()
	for ; err == nil; f, err = l.receive(maxFrame) {
		switch {
		case f.Kind == putBlob && m.server != nil:
			f.Rank = rank
			m.server.addBlob(f)
		case f.Kind == allBlobs:
			m.deliverGather(f)
		case f.Kind != control || f.Message == nil:
		case f.Message.Kind == overlay.Drop:
			m.step(func(now time.Time) {
				if slices.Contains(m.links[rank], l) {
					m.detach(rank, l)
					m.node.LinkDropped(now, rank, l.made)
				}
			})
			return
		default:
			m.step(func(now time.Time) { m.node.Receive(now, rank, f.Message) })
		}
	}
	reason := lossReason(err)
	m.step(func(now time.Time) {
		delete(m.dropped, l)
		if !l.dropped && slices.Contains(m.links[rank], l) {
			m.detach(rank, l)
			m.node.LinkDown(now, rank, l.made, reason)
		}
	})
}

// Close says goodbye to the other ranks. It returns when all ranks that answer have acknowledged,
// when ctx ends, or after overlay.LeaveTime. The other ranks stay connected. Rank 0 may first wait for
// lingerTime; see linger. Reports and Gathers in progress return. Later calls of Close do nothing.
func (m *Member) Close(ctx context.Context) error {
	m.mu.Lock()
	again := m.closed
	m.closed = true
	m.mu.Unlock()
	if again {
		return nil
	}
	m.linger(ctx)
	ctx, cancel := context.WithTimeout(ctx, overlay.LeaveTime)
	defer cancel()
	m.step(m.node.Leave)
	m.awaitExit(ctx)
	close(m.done)
	m.nodeMu.Lock()
	m.cancel()
	m.timer.Stop()
	for _, links := range m.links {
		for _, l := range links {
			l.Close()
		}
	}
	for l := range m.dropped {
		l.Close()
	}
	m.nodeMu.Unlock()
	var err error
	if m.server != nil {
		err = m.server.close()
	}
	m.wg.Wait()
	return err
}

// linger delays the departure of rank 0 while other ranks leave that may have no link but the one
// with rank 0. If rank 0 left first, each of them would connect to another rank only to leave.
func (m *Member) linger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lingerTime)
	defer cancel()
	quiet := time.NewTimer(lingerIdle)
	defer quiet.Stop()
	for present := -1; ; {
		m.nodeMu.Lock()
		others := m.node.Dependents(time.Now())
		m.nodeMu.Unlock()
		switch others {
		case 0:
			return
		case present:
		default:
			present = others
			quiet.Reset(lingerIdle)
		}
		select {
		case <-m.stepped:
		case <-quiet.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// awaitExit returns when this rank may exit or ctx ends. Meanwhile it ticks the node.
func (m *Member) awaitExit(ctx context.Context) {
	tick := time.NewTicker(overlay.LeaveTick)
	defer tick.Stop()
	for {
		m.nodeMu.Lock()
		gone := m.node.MayExit()
		m.nodeMu.Unlock()
		if gone {
			return
		}
		select {
		case <-m.stepped:
		case <-tick.C:
			m.step(m.node.Tick)
		case <-ctx.Done():
			return
		}
	}
}
