package watch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/silence"
)

// A hub is rank 0's side: it accepts the other ranks and passes frames on.
type hub struct {
	m         *Member
	listener  net.Listener
	strangers strangers
	vigil     vigil

	// news is held while a loss or a cause is told to all, rank 0 being the last,
	// so that all hear of them in one order. Whoever hears of one may leave at
	// once: nobody must hear of that first.
	news sync.Mutex

	mu      sync.Mutex
	conns   []*conn // by rank; nil: not here, or gone
	joined  int
	left    int           // ranks that have said goodbye or are lost
	over    bool          // rank 0 has given up waiting for all to join
	refused string        // the last that seemed to be a rank, and why
	full    chan struct{} // closed when all have joined
	empty   chan struct{} // closed when all others have left
	gathers map[string]*gather
	causes  map[string]*Cause // the first of each group that has ended
	passed  [maxPassed]string // the last positions that were passed on, of nPassed
	nPassed int
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
	h := &hub{
		m: m, listener: l, conns: make([]*conn, m.cfg.Size), joined: 1,
		vigil: vigil{askTime, quietTime, make([]time.Time, m.cfg.Size)},
		full:  make(chan struct{}), empty: make(chan struct{}), gathers: make(map[string]*gather), causes: make(map[string]*Cause),
	}
	m.hub = h
	m.blobs = make([][]byte, m.cfg.Size)
	m.blobs[0] = m.cfg.Blob
	if m.cfg.Size == 1 {
		close(h.full)
		close(h.empty)
	}
	h.readers.Go(h.accept)
	select {
	case <-h.full:
		return nil
	case <-ctx.Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		h.over = true // who is about to enter would wait for nobody
		var missing []int
		for r := 1; r < m.cfg.Size; r++ {
			if h.conns[r] == nil {
				missing = append(missing, r)
			}
		}
		l.Close()
		h.strangers.close()
		for _, c := range h.conns {
			if c != nil {
				c.Close()
			}
		}
		return &engine.AbsentError{
			Ranks: missing,
			Err:   fmt.Errorf("%d of %d ranks joined; %s missing%s: %w", h.joined, m.cfg.Size, engine.Ranks(missing), h.refused, ctx.Err()),
		}
	}
}

// admit finds out who has connected.
func (h *hub) admit(c *conn) {
	cfg := &h.m.cfg
	note := func(reason string) {
		cfg.Logger.Warn("tutti: refused a control connection", "from", c.RemoteAddr().String(), "reason", reason)
	}
	refuse := func(reason string) {
		note(reason)
		_ = c.send(&frame{Kind: refused, Reason: reason})
		c.Close()
	}
	refuseRank := func(reason string) {
		h.mu.Lock()
		h.refused = fmt.Sprintf(" (%v was refused: %s)", c.RemoteAddr(), reason)
		h.mu.Unlock()
		refuse(reason)
	}
	until := time.Now().Add(helloTime)
	err := errors.Join(c.SetDeadline(until), silence.Bound(c.raw, cfg.Silence))
	if err != nil {
		refuse(err.Error())
		return
	}
	ours := newNonce()
	if err := c.send(&frame{Kind: challenge, Version: version, Nonce: ours, TLS: cfg.TLS != nil}); err != nil {
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
	case !h.strangers.remove(c.raw):
		refuse(errSentAway.Error())
	default:
		if wrong := h.enter(c, f, prove(cfg.Secret, "root", ours, f.Nonce, f.Rank, f.Size, c.binding)); wrong != "" {
			refuseRank(wrong)
		}
	}
}

// enter lets a rank in, and, if it was the last, tells all that it was. It returns
// why it does not.
func (h *hub) enter(c *conn, f *frame, proof []byte) (wrong string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns[f.Rank] != nil || h.m.blobs[f.Rank] != nil {
		return fmt.Sprintf("rank %d is here already", f.Rank)
	}
	if h.over {
		return "rank 0 has given up waiting for all to join"
	}
	_ = c.SetDeadline(time.Time{})
	h.conns[f.Rank] = c
	h.m.blobs[f.Rank] = append([]byte{}, f.Blob...)
	c.welcome = proof
	if h.joined++; h.joined < h.m.cfg.Size {
		return ""
	}
	for r, c := range h.conns {
		if c != nil {
			_ = c.send(&frame{Kind: welcome, Proof: c.welcome, Blobs: h.m.blobs})
			h.readers.Go(func() { h.listen(r, c) })
			h.readers.Go(func() { c.beat(h.m.cfg.Silence, c.over) })
		}
	}
	close(h.full)
	return ""
}

// listen takes what comes from one rank.
func (h *hub) listen(rank int, c *conn) {
	defer close(c.over)
	reason := ""
	for {
		f, err := c.receive(maxFrame)
		if err != nil {
			reason = ended(err)
			break
		}
		if f.Kind == bye {
			break
		}
		h.hears(rank)
		h.take(rank, f)
	}
	if reason != "" {
		h.news.Lock()
		h.spread(&frame{Kind: lost, Rank: rank, Reason: reason}, rank)
		h.m.lose(rank, reason)
		h.news.Unlock()
	} else {
		_ = c.send(&frame{Kind: bye})
	}
	c.Close()
	h.mu.Lock()
	h.conns[rank] = nil
	if h.left++; h.left == h.m.cfg.Size-1 {
		close(h.empty)
	}
	h.mu.Unlock()
}

// take does what a frame from a rank asks for.
func (h *hub) take(rank int, f *frame) {
	switch f.Kind {
	case put:
		f.Rank = rank
		h.collect(f)
	case at:
		f.Rank = rank
		h.pass(f)
	case failed:
		if f.Cause != nil {
			f.Cause.From = rank
			h.judge(f.Cause)
		}
	}
}

// judge decides which cause of a group's end came first, and tells it to all
// members, among them the one that reported this.
func (h *hub) judge(c *Cause) {
	h.news.Lock()
	defer h.news.Unlock()
	h.mu.Lock()
	first := h.causes[c.Group]
	if first == nil {
		h.causes[c.Group] = c
		h.mu.Unlock()
		h.spread(&frame{Kind: failed, Members: c.Members, Cause: c}, 0)
		h.m.fail(c)
		return
	}
	reporter := h.conns[c.From]
	h.mu.Unlock()
	if reporter != nil {
		_ = reporter.send(&frame{Kind: failed, Cause: first})
	} else if c.From == 0 {
		h.m.fail(first)
	}
}

// spread passes a frame on to the ranks that it concerns: to the members that
// it names, or to all.
func (h *hub) spread(f *frame, from int) {
	h.mu.Lock()
	conns := slices.Clone(h.conns)
	h.mu.Unlock()
	for r, c := range conns {
		if c != nil && r != from && (f.Members == nil || slices.Contains(f.Members, r)) {
			_ = c.send(f)
		}
	}
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
	h.spread(out, 0)
	if slices.Contains(g.members, 0) {
		h.m.take(out)
	}
}

// close waits until the others have left, or cannot be told anything.
func (h *hub) close(ctx context.Context) error {
	h.await(ctx)
	err := h.listener.Close()
	h.strangers.close()
	h.mu.Lock()
	for _, c := range h.conns {
		if c != nil {
			_ = c.send(&frame{Kind: bye})
			c.Close()
		}
	}
	h.mu.Unlock()
	h.readers.Wait()
	return err
}
