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
type hub struct {
	m         *Member
	listener  net.Listener
	strangers strangers

	mu      sync.Mutex
	conns   []*conn // by rank; nil: not here
	links   []*link // the same, when all have joined
	came    []bool  // by rank: it has been here, and may have given up or ended since
	joined  int
	over    bool          // rank 0 has given up waiting for all to join
	refused string        // the last that seemed to be a rank, and why
	ruin    ruin          // why the job cannot be formed
	full    chan struct{} // closed when all have joined
	gathers map[string]*gather
	readers sync.WaitGroup // all goroutines
}

// gather is an exchange of which not all blobs are here.
type gather struct {
	members []int
	blobs   [][]byte
	missing int
}

// host joins as rank 0.
func (m *Member) host(ctx context.Context) error {
	l := m.cfg.Listener
	if l == nil {
		var lc net.ListenConfig
		var err error
		if l, err = lc.Listen(ctx, "tcp", m.cfg.Addr); err != nil {
			return fmt.Errorf("rank 0 cannot listen at %s: %w", m.cfg.Addr, err)
		}
	}
	if err := onLoopback(m.cfg.Addr, l.Addr()); err != nil {
		l.Close()
		return fmt.Errorf("rank 0 cannot listen: %w", err)
	}
	m.key = make([]byte, keyBytes)
	rand.Read(m.key) // never fails
	h := &hub{
		m: m, listener: l, conns: make([]*conn, m.cfg.Size), came: make([]bool, m.cfg.Size), joined: 1,
		ruin: newRuin(m.cfg.Size), full: make(chan struct{}), gathers: make(map[string]*gather),
	}
	m.hub = h
	m.blobs = make([][]byte, m.cfg.Size)
	m.blobs[0] = m.cfg.Blob
	if m.cfg.Size == 1 {
		m.begin(nil)
		close(h.full)
	}
	h.readers.Go(h.accept)
	select {
	case <-h.full:
		return nil
	case <-h.ruin.begun:
		return h.endRuined(ctx)
	case <-ctx.Done():
		return h.giveUp(ctx)
	}
}

// giveUp returns rank 0's error when it waits no longer; nil if all have joined, and
// so have been told, at the same time.
func (h *hub) giveUp(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.full:
		return nil
	default:
	}
	h.over = true // a rank that is about to enter would wait in vain
	if h.ruin.reason != "" {
		h.turnAway(nil)
		return mismatchError(h.ruin.reason)
	}
	var missing, gone []int
	for r := 1; r < len(h.conns); r++ {
		switch {
		case !h.came[r]:
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
	h.turnAway(&frame{Kind: refused, Reason: gaveUp + ": " + why})
	return &engine.AbsentError{Ranks: missing, Err: fmt.Errorf("%s: %w", why, ctx.Err())}
}

// turnAway ends all connections, of ranks that have joined and of others, and
// listens no more. Ranks that have joined are sent why, unless it is nil. h.mu is held.
func (h *hub) turnAway(why *frame) {
	h.listener.Close()
	h.strangers.close()
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
func (h *hub) admit(c *conn) {
	cfg := &h.m.cfg
	note := func(reason string) {
		cfg.Logger.Warn("tutti: refused a control connection", "from", c.RemoteAddr().String(), "reason", reason)
	}
	sendAway := func(why *frame) {
		note(why.Reason)
		_ = c.send(why)
		c.Close()
	}
	refuse := func(reason string) { sendAway(&frame{Kind: refused, Reason: reason}) }
	remember := func(reason string) {
		h.mu.Lock()
		h.refused = fmt.Sprintf(" (%v was refused: %s)", c.RemoteAddr(), reason)
		h.mu.Unlock()
	}
	refuseRank := func(reason string) {
		remember(reason)
		refuse(reason)
	}
	// refuseAll refuses a rank that is not like the others, and so all of them. Rank
	// 0's Join returns the reason; where it does not, the log has it.
	refuseAll := func(rank int, reason string) {
		_ = c.send(&frame{Kind: refused, Reason: reason, Mismatch: true})
		c.Close()
		if !h.spoil(rank, reason) {
			note(reason)
		}
	}
	until := time.Now().Add(helloTime)
	err := errors.Join(c.SetDeadline(until), keepalive.Bound(c.raw, cfg.Silence))
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
			if reason, rank := unencrypted(err); rank {
				refuseRank(reason)
			} else {
				note(reason) // it would not understand a frame
				c.Close()
			}
			return
		}
	}
	f, err := c.receive(maxHello)
	if errors.Is(err, net.ErrClosed) {
		err = errSentAway
	}
	switch {
	case err != nil:
		refuse(err.Error())
	case f.Kind == hello && f.TLS && cfg.TLS == nil:
		refuseRank("it encrypts, and this job does not; " + whatDiffers)
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
		refuseAll(f.Rank, versionsDiffer(f.Rank, f.Build, &cfg.Version))
	case !h.strangers.remove(c.raw):
		refuse(errSentAway.Error())
	default:
		proof := prove(cfg.Secret, "root", ours, f.Nonce, f.Rank, f.Size, c.binding)
		wrong := h.enter(c, f, proof)
		for end := time.Now().Add(replaceTime); wrong.taken && time.Now().Before(end); time.Sleep(replaceTime / 50) {
			wrong = h.enter(c, f, proof)
		}
		switch {
		case wrong.mismatch:
			refuseAll(f.Rank, wrong.reason)
		case wrong.reason != "":
			remember(wrong.reason)
			sendAway(&frame{Kind: refused, Reason: wrong.reason, Taken: wrong.taken})
		}
	}
}

// gaveUp is why ranks are refused when rank 0 waits no longer.
const gaveUp = "rank 0 has given up waiting for all to join"

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
func (h *hub) enter(c *conn, f *frame, proof []byte) (wrong refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch other := h.conns[f.Rank]; {
	case h.over:
		return refusal{reason: gaveUp}
	case h.ruin.reason != "":
		return refusal{reason: h.ruin.reason, mismatch: true}
	case other != nil:
		return refusal{
			reason: fmt.Sprintf("rank %d is here already, at %v; its place is free when that process has ended", f.Rank, other.RemoteAddr()),
			taken:  true,
		}
	case h.m.blobs[f.Rank] != nil:
		return refusal{reason: fmt.Sprintf("rank %d is here already: all ranks had joined, and it has left", f.Rank)}
	}
	_ = c.SetDeadline(time.Time{})
	h.conns[f.Rank], h.came[f.Rank] = c, true
	h.m.blobs[f.Rank] = append([]byte{}, f.Blob...)
	c.welcome = proof
	h.readers.Go(func() { h.listen(f.Rank, c) })
	if h.joined++; h.joined < h.m.cfg.Size {
		return refusal{}
	}
	h.links = h.m.begin(h.conns)
	for _, c := range h.conns {
		if c != nil {
			_ = c.send(&frame{Kind: welcome, Proof: c.welcome, Blobs: h.m.blobs, JobKey: h.m.key})
		}
	}
	close(h.full)
	return refusal{}
}

// vacate frees the place of a rank whose connection has ended, or that has said
// something, before all have joined: another process of the rank may come. It
// reports false if all have joined.
func (h *hub) vacate(rank int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.full:
		return false
	default:
	}
	h.conns[rank], h.m.blobs[rank] = nil, nil
	h.joined--
	return true
}

// listen takes what comes from one rank.
func (h *hub) listen(rank int, c *conn) {
	f, err := c.receive(maxFrame)
	if h.vacate(rank) {
		close(c.over)
		c.Close()
		return
	}
	h.m.serve(rank, h.links[rank], f, err)
}

// collect takes one rank's blob of an exchange, and sends all when the last is
// there.
func (h *hub) collect(f *frame) {
	h.mu.Lock()
	g := h.gathers[f.Key]
	if g == nil {
		g = &gather{f.Members, make([][]byte, len(f.Members)), len(f.Members)}
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
	out := &frame{Kind: all, Key: f.Key, Members: g.members, Blobs: g.blobs}
	for _, r := range g.members {
		switch {
		case r == 0:
			h.m.take(out)
		case r > 0 && r < len(h.conns) && h.conns[r] != nil:
			_ = h.conns[r].send(out) // the end of the connection is noticed by its reader
		}
	}
}

// close ends the accepting of ranks.
func (h *hub) close() error {
	err := h.listener.Close()
	h.strangers.close()
	h.readers.Wait()
	return err
}
