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
	// dialTime bounds a dial of another rank. It is long, because a process that is stopped answers
	// late, and the end of such a process is noticed at once by a dial that waits for it.
	dialTime = time.Minute
	// linkTime is how long a message may take to leave on a link. Notices for all ranks wait that
	// long for one that does not read; its connection ends then, and is made again.
	linkTime = 200 * time.Millisecond
	// leaveTime bounds how long a rank that leaves waits for the others to know.
	leaveTime = 1500 * time.Millisecond
	// lingerQuiet is how long rank 0, when it leaves early, waits for another departure; lingerTime
	// bounds all of that. See linger.
	lingerIdle = 50 * time.Millisecond
	lingerTime = time.Second
	// leavePace is how often a rank that leaves does what is due.
	leaveTick = 2 * time.Millisecond
)

// A link is a connection with another rank after Join.
type link struct {
	*conn
	made    bool // this rank has made it
	dropped bool // this rank sends nothing on it any more; guarded by Member.news
}

// A Dialer connects to another rank of the job, and proves to it which rank this is.
type Dialer func(ctx context.Context, rank int) (net.Conn, error)

// Reach lets this rank connect to others than rank 0. It is called when all exchanges of Join are
// complete. Before it is called, a rank whose connection has ended is lost.
func (m *Member) Reach(dial Dialer) {
	m.step(func(now time.Time) {
		m.dialer = dial
		m.node.Reach(now)
	})
}

// Accept takes a connection of another rank that has proved itself.
func (m *Member) Accept(rank int, nc net.Conn) {
	if !m.step(func(now time.Time) { m.attach(now, rank, &link{conn: newConn(nc)}) }) {
		nc.Close()
	}
}

// begin starts with the connections of Join, by rank. No message is read before.
func (m *Member) startNode(conns []*conn) (links []*link) {
	m.nodeMu.Lock()
	defer m.nodeMu.Unlock()
	m.node.Begin()
	links = make([]*link, len(conns))
	for r, c := range conns {
		if c != nil {
			links[r] = &link{conn: c, made: m.cfg.Rank != 0}
			m.links[r] = []*link{links[r]}
			m.wg.Go(func() { c.sendHeartbeats(m.cfg.Silence, c.readerDone) })
		}
	}
	m.timer = time.AfterFunc(time.Hour, func() { _ = m.step(m.node.Tick) })
	return links
}

// step has the node take something, and carries out what it asks for. It reports false, and does
// nothing, if this rank has left.
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

// perform carries out actions in their order. Messages to a rank that follow each other leave in one
// write; they leave before any other action is carried out. m.news is held, so that all groups are
// notified in one order.
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

// An outbox collects the frames of one step, encoded, by the rank that they go to.
type outbox struct {
	last    *overlay.Message // the message that was encoded last: it may go to many ranks
	encoded []byte           // last as it travels; nil: it is too long, and is not sent
	to      []outgoing
}

// outgoing is what one rank is sent.
type outgoing struct {
	rank  int
	bytes []byte
}

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

// flush writes what the outbox holds, to each rank on its newest link. m.news is held.
func (m *Member) flush(out *outbox) {
	for _, g := range out.to {
		if links := m.links[g.rank]; len(links) > 0 && len(g.bytes) > 0 {
			_ = links[len(links)-1].write(g.bytes, linkTime) // the end of the connection is noticed by its reader
		}
	}
	out.to = out.to[:0]
}

// dial connects to a rank in the background. m.news is held.
func (m *Member) dial(rank int) {
	m.wg.Go(func() {
		ctx, cancel := context.WithTimeout(m.ctx, dialTime)
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

// dialResult tells a rank that has exited from one that is stopped or cut off.
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

// attach begins to use a connection with a rank. m.news is held.
func (m *Member) attach(now time.Time, rank int, l *link) {
	m.links[rank] = append(m.links[rank], l)
	m.node.LinkUp(now, rank, l.made)
	m.wg.Go(func() { l.sendHeartbeats(m.cfg.Silence, l.readerDone) })
	m.wg.Go(func() {
		f, err := l.receive(maxFrame)
		m.readLink(rank, l, f, err)
	})
}

// drop uses a link that this rank has made no more. The other side ends it when it has read that;
// what it has sent before is still taken. m.news is held.
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

// detach ends the use of a link. m.news is held.
func (m *Member) detach(rank int, l *link) {
	m.links[rank] = slices.DeleteFunc(m.links[rank], func(o *link) bool { return o == l })
}

// serve takes what comes on a link, of which it is passed the first frame, until it ends.
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

// Close says goodbye, and returns when the ranks that answer know, or ctx ends; leaveTime bounds
// it. The other ranks go on among themselves. Rank 0 may wait for lingerTime before that.
func (m *Member) Close(ctx context.Context) error {
	m.mu.Lock()
	again := m.closed
	m.closed = true
	m.mu.Unlock()
	if again {
		return nil
	}
	m.linger(ctx)
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
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

// linger has rank 0 leave after the other ranks, if they leave now, too, and may have no link but
// that with rank 0. Each of them would otherwise connect to another rank, only to leave.
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

// awaitGone returns when this rank may exit, or ctx ends.
func (m *Member) awaitExit(ctx context.Context) {
	tick := time.NewTicker(leaveTick)
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
