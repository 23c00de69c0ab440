package tutti

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/place"
	"github.com/tutti-go/tutti/store"
)

// askTime is how long a rank that has failed to join asks who is missing, and how
// long one that has not reached the store in time tries once more.
const askTime = 2 * time.Second

// A meeting is how ranks find rank 0 through a store: a launcher's, or that of
// torchrun's agent.
type meeting struct {
	cfg      *Config
	client   *store.Client
	store    store.Store
	listener net.Listener // rank 0's
	joining  bool         // the address is known
	turn     int64        // how often this rank has joined
}

// meet finds out where rank 0 listens, or says it, and notes it in cfg.
func meet(ctx context.Context, cfg *Config, p *place.Place) (*meeting, error) {
	client, s, err := newProcesses(cfg, p).dial(ctx)
	if err != nil {
		return nil, err
	}
	m := &meeting{cfg: cfg, client: client, store: s}
	if err := m.claim(ctx); err != nil {
		m.close()
		return nil, err
	}
	if err := m.find(ctx, p.Store); err != nil {
		err = m.failed(err)
		m.close()
		return nil, err
	}
	return m, nil
}

// claim makes sure that this process is the only one of its rank, and that it
// believes in as many ranks as the others do. The job is told of one that is
// refused.
func (m *meeting) claim(ctx context.Context) error {
	host, _ := os.Hostname() // for people; the process id usually tells enough
	me := fmt.Sprintf("process %d on %s", os.Getpid(), host)
	for _, c := range []struct{ key, mine, wrong string }{
		{"size", strconv.Itoa(m.cfg.Size), fmt.Sprintf("it believes in %d ranks, this job has %%s; all must be told the same", m.cfg.Size)},
		{m.key("rank"), me, fmt.Sprintf("rank %d is here already: %%s", m.cfg.Rank)},
	} {
		theirs, err := m.store.CompareAndSet(ctx, c.key, nil, []byte(c.mine))
		if err != nil {
			return err
		}
		if string(theirs) != c.mine {
			text := fmt.Sprintf(c.wrong, theirs)
			_ = m.store.Push(ctx, "refused", []byte(me+": "+text))
			return fmt.Errorf("%s is refused: %s", me, text)
		}
	}
	return nil
}

// find exchanges rank 0's address.
func (m *meeting) find(ctx context.Context, at string) error {
	// A process may join, leave, and join again.
	var err error
	if m.turn, err = m.store.Add(ctx, m.key("turns"), 1); err != nil {
		return err
	}
	key := fmt.Sprintf("address/%d", m.turn)
	if m.cfg.Rank != 0 {
		addr, err := m.store.Get(ctx, key)
		m.cfg.Addr = string(addr)
		return err
	}
	if m.cfg.Addr, m.listener, err = listenNear(ctx, at); err != nil {
		return err
	}
	return m.store.Set(ctx, key, []byte(m.cfg.Addr))
}

func (m *meeting) key(kind string) string { return kind + "/" + strconv.Itoa(m.cfg.Rank) }

// listenNear listens where those can come who reach the store: on the loopback
// if it is there, and else on all interfaces.
func listenNear(ctx context.Context, at string) (string, net.Listener, error) {
	var lc net.ListenConfig
	if place.OnLoopback(at) {
		l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		return l.Addr().String(), l, nil
	}
	// No packet is sent: this only asks for the way to the store.
	var d net.Dialer
	way, err := d.DialContext(ctx, "udp", at)
	if err != nil {
		return "", nil, err
	}
	defer way.Close()
	l, err := lc.Listen(ctx, "tcp", ":0")
	if err != nil {
		return "", nil, err
	}
	host, _, _ := net.SplitHostPort(at)
	if ip := way.LocalAddr().(*net.UDPAddr).IP; !ip.IsLoopback() {
		host = ip.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(l.Addr().(*net.TCPAddr).Port)), l, nil
}

// note tells those who look into the store that this rank has joined.
func (m *meeting) note(ctx context.Context) error { return m.store.Set(ctx, m.key("joined"), nil) }

// failed gives the rank back to another process, or, if joining failed because
// this rank, or rank 0, has waited long enough, says who has not come.
func (m *meeting) failed(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	if !slices.ContainsFunc([]error{context.DeadlineExceeded, context.Canceled, io.EOF, syscall.ECONNRESET},
		func(e error) bool { return errors.Is(err, e) }) {
		_, _ = m.store.Delete(ctx, m.key("rank"))
		return err
	}
	if m.cfg.Rank == 0 && m.joining { // which knows by itself
		return err
	}
	keys, e := m.store.List(ctx)
	if e != nil {
		return err
	}
	here := make([]bool, m.cfg.Size)
	for _, k := range keys {
		if text, ok := strings.CutPrefix(k, "rank/"); ok {
			if r, e := strconv.Atoi(text); e == nil && r >= 0 && r < len(here) {
				here[r] = true
			}
		}
	}
	var missing []int
	for r, h := range here {
		if !h {
			missing = append(missing, r)
		}
	}
	if len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%d of %d ranks joined; %s missing: %w", m.cfg.Size-len(missing), m.cfg.Size, engine.Ranks(missing), err)
}

func (m *meeting) close() {
	if m.listener != nil {
		m.listener.Close()
	}
	m.client.Close()
}

// joinJob joins the job, through a store if the place has one. An error that is
// a *cause says all.
func joinJob(ctx context.Context, cfg *Config, p *place.Place) (*Comm, error) {
	if cfg.Late {
		return joinLate(ctx, cfg, p)
	}
	h := &home{site: newSite(cfg, p), teller: newTeller(cfg, p), ids: count(cfg.Size), line: worldLine}
	var m *meeting
	var listener net.Listener
	var err error
	if h.site != nil {
		if m, err = meet(ctx, cfg, p); err != nil {
			return nil, err
		}
		defer m.client.Close()
		listener = m.listener
		if m.turn > 1 {
			h.line = fmt.Sprint(worldLine, ".", m.turn)
		}
	}
	h.cfg = *cfg
	j, err := cfg.enter(ctx, cfg.Rank, cfg.Size, cfg.Addr, listener, []byte(cfg.Secret))
	switch {
	case err != nil && m != nil:
		m.joining = true
		err = m.failed(err)
		m.close()
		return nil, err
	case err != nil:
		return nil, err
	}
	h.job = j
	e := j.World()
	if m != nil {
		if err := m.note(ctx); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	if e, err = cfg.attach(e, nil); err != nil {
		return nil, err
	}
	return newComm(e, h), nil
}
