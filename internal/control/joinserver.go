package control

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/keepalive"
)

// A joinServer is rank 0's side of Join. It accepts the other ranks and carries out Gathers.
type joinServer struct {
	member       *Member
	listener     net.Listener
	pendingConns pendingConns

	mu          sync.Mutex // guards the fields below but complete and wg; conns is constant once complete is closed
	conns       []*conn    // by rank; nil: not joined
	links       []*link    // by rank: the links over conns; set when all ranks have joined
	joinedOnce  []bool     // by rank: it has joined; it may have given up or exited since
	joined      int
	closed      bool          // rank 0 has given up waiting for ranks
	refused     string        // the last peer that was refused although it seemed to be a rank, with the reason
	formFailure formFailure   // why the job cannot be formed
	complete    chan struct{} // closed when all ranks have joined
	gathers     map[string]*gatherState
	wg          sync.WaitGroup // all goroutines of the server
}

// A gatherState is a Gather for which blobs are missing. joinServer.mu guards it.
type gatherState struct {
	members []int
	blobs   [][]byte
	missing int
}

// serveJoin joins as rank 0: it listens and returns when all ranks have joined, when the versions
// differ, or when ctx ends.
func (m *Member) serveJoin(ctx context.Context) error {
	l := m.cfg.Listener
	if l == nil {
		var lc net.ListenConfig
		var err error
		if l, err = lc.Listen(ctx, "tcp", m.cfg.Addr); err != nil {
			return fmt.Errorf("rank 0 cannot listen at %s: %w", m.cfg.Addr, err)
		}
	}
	if err := checkLoopback(m.cfg.Addr, l.Addr()); err != nil {
		l.Close()
		return fmt.Errorf("rank 0 cannot listen: %w", err)
	}
	m.key = make([]byte, keyBytes)
	rand.Read(m.key) // never fails
	h := &joinServer{
		member: m, listener: l, conns: make([]*conn, m.cfg.Size), joinedOnce: make([]bool, m.cfg.Size), joined: 1,
		formFailure: newFormFailure(m.cfg.Size), complete: make(chan struct{}), gathers: make(map[string]*gatherState),
	}
	m.server = h
	m.blobs = make([][]byte, m.cfg.Size)
	m.blobs[0] = m.cfg.Blob
	if m.cfg.Size == 1 {
		m.startNode(nil)
		close(h.complete)
	}
	h.wg.Go(h.accept)
	defer Remind(ctx, RemindInterval, h.logMissing)()
	select {
	case <-h.complete:
		return nil
	case <-h.formFailure.failed:
		return h.abortForming(ctx)
	case <-ctx.Done():
		return h.giveUp(ctx)
	}
}

// giveUp returns rank 0's error after the end of ctx. It returns nil if all ranks have joined in
// the meantime.
func (h *joinServer) giveUp(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.complete:
		return nil
	default:
	}
	h.closed = true // addRank refuses ranks from now on
	if h.formFailure.reason != "" {
		h.closeAll(nil)
		return mismatchError(h.formFailure.reason)
	}
	why, missing := h.status(0)
	h.closeAll(&frame{Kind: refused, Reason: gaveUpReason + ": " + why})
	return &engine.AbsentError{Ranks: missing, Err: fmt.Errorf("%s: %w", why, ctx.Err())}
}

// closeAll closes the listener and all connections. It first sends why, unless nil, to the ranks
// that have joined. The caller holds h.mu.
func (h *joinServer) closeAll(why *frame) {
	h.listener.Close()
	h.pendingConns.close()
	for _, c := range h.conns {
		if c != nil {
			if why != nil {
				_ = c.send(why)
			}
			c.Close()
		}
	}
}

// admit authenticates a new connection and adds its rank, or refuses it with one line in the log. The line is for
// debugging if the connection ends before its hello.
// It runs in a goroutine of its own per connection.
func (h *joinServer) admit(c *conn) {
	cfg := &h.member.cfg
	logRefusal := func(reason string) {
		cfg.Logger.Warn("tutti: refused a connection", "from", c.RemoteAddr().String(), "reason", reason)
	}
	refuseWith := func(why *frame) {
		logRefusal(why.Reason)
		_ = c.send(why)
		c.Close()
	}
	refuse := func(reason string) { refuseWith(&frame{Kind: refused, Reason: reason}) }
	recordRefusal := func(reason string) {
		h.mu.Lock()
		h.refused = fmt.Sprintf(" (%v was refused: %s)", c.RemoteAddr(), reason)
		h.mu.Unlock()
	}
	refuseRank := func(reason string) {
		recordRefusal(reason)
		refuse(reason)
	}
	// refuseAll refuses a rank whose version or options differ, and fails Join of all ranks. Rank
	// 0's Join returns the reason. If the job is already formed, only the log has the reason.
	refuseAll := func(rank int, reason string) {
		_ = c.send(&frame{Kind: refused, Reason: reason, Mismatch: true})
		c.Close()
		if !h.failForming(rank, reason) {
			logRefusal(reason)
		}
	}
	until := time.Now().Add(helloTime)
	err := errors.Join(c.SetDeadline(until), keepalive.Apply(c.raw, cfg.HostTimeout))
	if err != nil {
		refuse(err.Error())
		return
	}
	ours := newNonce()
	logEnd := func(err error) {
		cfg.Logger.Debug("tutti: a connection has ended before its hello", "from", c.RemoteAddr().String(), "reason", err)
		c.Close()
	}
	if err := c.send(&frame{Kind: challenge, Version: version, Build: &cfg.Version, Nonce: ours, TLS: cfg.TLS != nil}); endedByPeer(err) {
		logEnd(err)
		return
	} else if err != nil {
		refuse(err.Error())
		return
	}
	if cfg.TLS != nil {
		_ = c.SetDeadline(until) // send has set a shorter write deadline
		if err := c.encrypt(tls.Server(c.raw, cfg.TLS)); err != nil {
			if reason, rank := tlsFailure(err); rank {
				refuseRank(reason)
			} else {
				logRefusal(reason) // the peer would not understand a frame
				c.Close()
			}
			return
		}
	}
	f, err := c.receive(maxHello)
	if errors.Is(err, net.ErrClosed) {
		err = errEvicted
	}
	switch {
	case endedByPeer(err):
		logEnd(err)
	case err != nil:
		refuse(err.Error())
	case f.Kind == hello && f.TLS && cfg.TLS == nil:
		refuseRank("it encrypts, and this job does not; " + tlsHint)
	case f.Kind != hello || len(f.Nonce) != nonceBytes:
		refuse("it does not use tutti's protocol")
	case f.Version != version:
		refuseRank(fmt.Sprintf("it uses version %d of the handshake, this job uses version %d; build all ranks with the same version of tutti", f.Version, version))
	case !proved(cfg.Secret, "rank", ours, f.Nonce, f.Rank, f.Size, c.binding, f.Proof):
		refuseRank("it does not know the job's secret, which must be the same on all ranks (Config.Secret, TUTTI_SECRET)")
	case f.Size != cfg.Size:
		refuseRank(fmt.Sprintf("it was started for %d ranks, and this job has %d; set the same number on all ranks (Config.Size, TUTTI_SIZE)", f.Size, cfg.Size))
	case f.Rank < 1 || f.Rank >= cfg.Size:
		refuseRank(fmt.Sprintf("rank %d is out of range: this job has ranks 1 to %d", f.Rank, cfg.Size-1))
	case !cfg.Version.fits(f.Build):
		refuseAll(f.Rank, versionMismatch(f.Rank, f.Build, &cfg.Version))
	case !h.pendingConns.remove(c.raw):
		refuse(errEvicted.Error())
	default:
		proof := prove(cfg.Secret, "root", ours, f.Nonce, f.Rank, f.Size, c.binding)
		refusal := h.addRank(c, f, proof)
		for end := time.Now().Add(replaceTime); refusal.taken && time.Now().Before(end); time.Sleep(replaceTime / 50) {
			refusal = h.addRank(c, f, proof)
		}
		switch {
		case refusal.mismatch:
			refuseAll(f.Rank, refusal.reason)
		case refusal.reason != "":
			recordRefusal(refusal.reason)
			refuseWith(&frame{Kind: refused, Reason: refusal.reason, Taken: refusal.taken})
		}
	}
}

// endedByPeer reports whether a connection has ended in good order or was reset: the other process has exited, its
// context has ended, or it only checks that this rank listens.
func endedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// gaveUpReason is the reason for a refusal after rank 0's Join has ended.
const gaveUpReason = "rank 0 has stopped waiting for ranks to join"

// replaceTime is how long admit waits for the connection of an earlier process of the same rank to
// end. Rank 0 may notice the end of a replaced process after the start of the new one.
const replaceTime = 500 * time.Millisecond

// A refusal says why a rank cannot join. The zero refusal means that it has joined.
type refusal struct {
	reason   string
	taken    bool // another process of the rank has joined
	mismatch bool // the versions or options of the ranks differ
}

// addRank adds a rank. If it is the last one, addRank sends the welcome to all ranks. It returns
// the reason if the rank cannot join.
func (h *joinServer) addRank(c *conn, f *frame, proof []byte) (why refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch other := h.conns[f.Rank]; {
	case h.closed:
		return refusal{reason: gaveUpReason}
	case h.formFailure.reason != "":
		return refusal{reason: h.formFailure.reason, mismatch: true}
	case other != nil:
		return refusal{
			reason: fmt.Sprintf("rank %d has joined already, from %v; start it again when that process has exited", f.Rank, other.RemoteAddr()),
			taken:  true,
		}
	case h.member.blobs[f.Rank] != nil:
		return refusal{reason: fmt.Sprintf("rank %d has joined already, and has left the job since", f.Rank)}
	}
	_ = c.SetDeadline(time.Time{})
	h.conns[f.Rank], h.joinedOnce[f.Rank] = c, true
	h.member.blobs[f.Rank] = append([]byte{}, f.Blob...)
	c.welcome = proof
	h.wg.Go(func() { h.readRank(f.Rank, c) })
	if h.joined++; h.joined < h.member.cfg.Size {
		return refusal{}
	}
	h.links = h.member.startNode(h.conns)
	for _, c := range h.conns {
		if c != nil {
			_ = c.send(&frame{Kind: welcome, Proof: c.welcome, Blobs: h.member.blobs, JobKey: h.member.key})
		}
	}
	close(h.complete)
	return refusal{}
}

// removeRank removes a rank whose connection has ended, or that has sent a frame, before all ranks
// have joined. Another process of the rank may join then. It returns which ranks are missing, and
// reports false if all ranks have joined.
func (h *joinServer) removeRank(rank int) (status string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.complete:
		return "", false
	default:
	}
	h.conns[rank], h.member.blobs[rank] = nil, nil
	h.joined--
	status, _ = h.status(rank)
	return status, true
}

// readRank receives the frames of one rank in a goroutine of its own.
func (h *joinServer) readRank(rank int, c *conn) {
	f, err := c.receive(maxFrame)
	if status, removed := h.removeRank(rank); removed {
		if err == nil && f.Kind == leaving {
			_ = c.send(&frame{Kind: refused, Reason: status})
		}
		close(c.readerDone)
		c.Close()
		return
	}
	h.member.readLink(rank, h.links[rank], f, err)
}

// addBlob stores one rank's blob of a Gather. With the last blob it sends all blobs to the members.
func (h *joinServer) addBlob(f *frame) {
	h.mu.Lock()
	g := h.gathers[f.Key]
	if g == nil {
		g = &gatherState{f.Members, make([][]byte, len(f.Members)), len(f.Members)}
		h.gathers[f.Key] = g
	}
	if i := slices.Index(g.members, f.Rank); i >= 0 && i < len(g.blobs) && g.blobs[i] == nil {
		g.blobs[i] = append([]byte{}, f.Blob...)
		g.missing--
	}
	if g.missing > 0 {
		h.mu.Unlock()
		return
	}
	delete(h.gathers, f.Key)
	h.mu.Unlock()
	out := &frame{Kind: allBlobs, Key: f.Key, Members: g.members, Blobs: g.blobs}
	for _, r := range g.members {
		switch {
		case r == 0:
			h.member.deliverGather(out)
		case r > 0 && r < len(h.conns) && h.conns[r] != nil:
			_ = h.conns[r].send(out) // the reader notices the end of the connection
		}
	}
}

// close closes the listener and waits for all goroutines of the server.
func (h *joinServer) close() error {
	err := h.listener.Close()
	h.pendingConns.close()
	h.wg.Wait()
	return err
}
