package control

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/keepalive"
)

// A hub is rank 0's side of Join: it accepts the other ranks and carries out exchanges.
type joinServer struct {
	member       *Member
	listener     net.Listener
	pendingConns pendingConns

	mu          sync.Mutex
	conns       []*conn // by rank; nil: not here
	links       []*link // the same, when all have joined
	joinedOnce  []bool  // by rank: it has been here, and may have given up or ended since
	joined      int
	closed      bool          // rank 0 has given up waiting for all to join
	refused     string        // the last that seemed to be a rank, and why
	formFailure formFailure   // why the job cannot be formed
	complete    chan struct{} // closed when all have joined
	gathers     map[string]*gatherState
	wg          sync.WaitGroup // all goroutines
}

// gather is an exchange of which not all blobs are here.
type gatherState struct {
	members []int
	blobs   [][]byte
	missing int
}

// host joins as rank 0.
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
	select {
	case <-h.complete:
		return nil
	case <-h.formFailure.failed:
		return h.abortForming(ctx)
	case <-ctx.Done():
		return h.giveUp(ctx)
	}
}

// giveUp returns rank 0's error when it waits no longer; nil if all have joined, and
// so have been told, at the same time.
func (h *joinServer) giveUp(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.complete:
		return nil
	default:
	}
	h.closed = true // a rank that is about to enter would wait in vain
	if h.formFailure.reason != "" {
		h.closeAll(nil)
		return mismatchError(h.formFailure.reason)
	}
	var missing, gone []int
	for r := 1; r < len(h.conns); r++ {
		switch {
		case !h.joinedOnce[r]:
			missing = append(missing, r)
		case h.conns[r] == nil:
			gone = append(gone, r)
		}
	}
	why := fmt.Sprintf("%d of %d ranks joined", len(h.conns)-len(missing), len(h.conns))
	if len(missing) > 0 {
		why += fmt.Sprintf("; %s missing", engine.Ranks(missing))
	}
	if len(gone) > 0 {
		why += fmt.Sprintf("; %s did not wait", engine.Ranks(gone))
	}
	why += h.refused
	h.closeAll(&frame{Kind: refused, Reason: gaveUpReason + ": " + why})
	return &engine.AbsentError{Ranks: missing, Err: fmt.Errorf("%s: %w", why, ctx.Err())}
}

// turnAway ends all connections, of ranks that have joined and of others, and
// listens no more. Ranks that have joined are sent why, unless it is nil. h.mu is held.
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

// admit finds out who has connected.
func (h *joinServer) admit(c *conn) {
	cfg := &h.member.cfg
	logRefusal := func(reason string) {
		cfg.Logger.Warn("tutti: refused a control connection", "from", c.RemoteAddr().String(), "reason", reason)
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
	// refuseAll refuses a rank that is not like the others, and so all of them. Rank
	// 0's Join returns the reason; where it does not, the log has it.
	refuseAll := func(rank int, reason string) {
		_ = c.send(&frame{Kind: refused, Reason: reason, Mismatch: true})
		c.Close()
		if !h.failForming(rank, reason) {
			logRefusal(reason)
		}
	}
	until := time.Now().Add(helloTime)
	err := errors.Join(c.SetDeadline(until), keepalive.Apply(c.raw, cfg.Silence))
	if err != nil {
		refuse(err.Error())
		return
	}
	ours := newNonce()
	if err := c.send(&frame{Kind: challenge, Version: version, Build: &cfg.Version, Nonce: ours, TLS: cfg.TLS != nil}); err != nil {
		refuse(err.Error())
		return
	}
	if cfg.TLS != nil {
		_ = c.SetDeadline(until) // what is sent has a shorter one
		if err := c.encrypt(tls.Server(c.raw, cfg.TLS)); err != nil {
			if reason, rank := tlsFailure(err); rank {
				refuseRank(reason)
			} else {
				logRefusal(reason) // it would not understand a frame
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
	case err != nil:
		refuse(err.Error())
	case f.Kind == hello && f.TLS && cfg.TLS == nil:
		refuseRank("it encrypts, and this job does not; " + tlsHint)
	case f.Kind != hello || len(f.Nonce) != nonceBytes:
		refuse("it does not speak tutti's control protocol")
	case f.Version != version:
		refuseRank(fmt.Sprintf("it speaks version %d of the control protocol, this job version %d", f.Version, version))
	case !proved(cfg.Secret, "rank", ours, f.Nonce, f.Rank, f.Size, c.binding, f.Proof):
		refuseRank("it does not know the job's secret, which must be the same on all ranks (Config.Secret, TUTTI_SECRET)")
	case f.Size != cfg.Size:
		refuseRank(fmt.Sprintf("it believes in %d ranks, this job has %d; all must be told the same", f.Size, cfg.Size))
	case f.Rank < 1 || f.Rank >= cfg.Size:
		refuseRank(fmt.Sprintf("rank %d is not one of 1 to %d", f.Rank, cfg.Size-1))
	case !cfg.Version.fits(f.Build):
		refuseAll(f.Rank, versionMismatch(f.Rank, f.Build, &cfg.Version))
	case !h.pendingConns.remove(c.raw):
		refuse(errEvicted.Error())
	default:
		proof := prove(cfg.Secret, "root", ours, f.Nonce, f.Rank, f.Size, c.binding)
		wrong := h.addRank(c, f, proof)
		for end := time.Now().Add(replaceTime); wrong.taken && time.Now().Before(end); time.Sleep(replaceTime / 50) {
			wrong = h.addRank(c, f, proof)
		}
		switch {
		case wrong.mismatch:
			refuseAll(f.Rank, wrong.reason)
		case wrong.reason != "":
			recordRefusal(wrong.reason)
			refuseWith(&frame{Kind: refused, Reason: wrong.reason, Taken: wrong.taken})
		}
	}
}

// gaveUp is why ranks are refused when rank 0 waits no longer.
const gaveUpReason = "rank 0 has given up waiting for all to join"

// replaceTime is how long a process waits for the place of one of the same rank
// whose connection may be about to end: the end of a process that was replaced may
// be noticed after the beginning of the new one.
const replaceTime = 500 * time.Millisecond

// A refusal is why a rank is not let in; the zero refusal: it is.
type refusal struct {
	reason   string
	taken    bool // another process of the rank is here
	mismatch bool // ranks are not alike
}

// enter lets a rank in, and, if it was the last, tells all that it was. It returns
// why it does not.
func (h *joinServer) addRank(c *conn, f *frame, proof []byte) (wrong refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch other := h.conns[f.Rank]; {
	case h.closed:
		return refusal{reason: gaveUpReason}
	case h.formFailure.reason != "":
		return refusal{reason: h.formFailure.reason, mismatch: true}
	case other != nil:
		return refusal{
			reason: fmt.Sprintf("rank %d is here already, at %v; its place is free when that process has ended", f.Rank, other.RemoteAddr()),
			taken:  true,
		}
	case h.member.blobs[f.Rank] != nil:
		return refusal{reason: fmt.Sprintf("rank %d is here already: all ranks had joined, and it has left", f.Rank)}
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

// vacate frees the place of a rank whose connection has ended, or that has said
// something, before all have joined: another process of the rank may come. It
// reports false if all have joined.
func (h *joinServer) removeRank(rank int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.complete:
		return false
	default:
	}
	h.conns[rank], h.member.blobs[rank] = nil, nil
	h.joined--
	return true
}

// listen takes what comes from one rank.
func (h *joinServer) readRank(rank int, c *conn) {
	f, err := c.receive(maxFrame)
	if h.removeRank(rank) {
		close(c.readerDone)
		c.Close()
		return
	}
	h.member.readLink(rank, h.links[rank], f, err)
}

// collect takes one rank's blob of an exchange, and sends all when the last is
// there.
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
			_ = h.conns[r].send(out) // the end of the connection is noticed by its reader
		}
	}
}

// close ends the accepting of ranks.
func (h *joinServer) close() error {
	err := h.listener.Close()
	h.pendingConns.close()
	h.wg.Wait()
	return err
}
