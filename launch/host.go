package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/claim"
	"github.com/tutti-go/tutti/internal/transport/tcp"
	"github.com/tutti-go/tutti/store"
)

// A host is this host's part in the job: the way to the store, and what the
// hosts agree on there.
type host struct {
	cfg       *Config
	base      int // this host's first rank
	size      int // ranks in the job
	storeAddr string
	torchAddr string        // "": no plain store
	plain     *store.Server // node 0's, if there is one
	cert, key []byte        // nil: nothing is encrypted
	all       store.Store
	own       store.Store // what launchers tell each other
	closers   []func() error
	gone      chan Exit // a host that was lost
	quiet     context.CancelFunc
	alone     bool // not all others will come to the end

	// Of an elastic job over several hosts; nil and zero in all others.
	reg          *registration
	coord        *coordinator // node 0's
	epoch        int          // the next attempt
	begins       int          // attempts that this launcher has waited for
	eventsBefore int          // events of the attempt before this launcher took part
	firsts       []int        // replacement numbers of its first processes, by place; nil: they are ranks from the start
}

// maxRanks is how many ranks one host may say that it has.
const maxRanks = 1 << 20

// closeTime is how long a launcher waits for the others at the end.
const closeTime = 10 * time.Second

// openHost hosts the store, or connects to it, and finds out how many ranks
// the other hosts have.
func openHost(ctx context.Context, cfg *Config) (*host, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.JoinTime)
	defer cancel()
	h := &host{cfg: cfg, storeAddr: cfg.Addr, gone: make(chan Exit, 1), quiet: func() {}}
	err := h.open(ctx)
	if err == nil {
		h.own = store.Prefix(h.all, "launch")
		if err = h.sameElastic(ctx); err == nil && cfg.overHosts() {
			err = h.coordinate(ctx)
		} else if err == nil {
			err = h.count(ctx)
		}
	}
	if err != nil {
		h.close()
		return nil, err
	}
	alive, cancel := context.WithCancel(context.Background())
	quiet := h.quiet
	h.quiet = func() { cancel(); quiet() }
	if cfg.Nodes > 1 && h.reg == nil {
		go h.beat(alive)
	}
	if cfg.Node == 0 {
		go h.hear(alive, h.own, "tutti: refused a host")
	}
	return h, nil
}

// sameElastic makes sure that all hosts say the same of Min and Max.
func (h *host) sameElastic(ctx context.Context) error {
	mine := h.cfg.elastic()
	if h.cfg.Node == 0 {
		if err := h.own.Set(ctx, "elastic", []byte(mine)); err != nil {
			return &Error{"the store", err}
		}
		return nil
	}
	theirs, err := h.own.Get(ctx, "elastic")
	if err != nil {
		return &Error{"the store", err}
	}
	if string(theirs) != mine {
		return h.turnedAway(ctx, fmt.Sprintf("it was started %s, this job %s; all hosts must say the same", mine, theirs))
	}
	return nil
}

// coordinate takes part in an elastic job over several hosts.
func (h *host) coordinate(ctx context.Context) error {
	if err := h.sameNodes(ctx); err != nil {
		return err
	}
	if h.cfg.Node == 0 {
		alive, cancel := context.WithCancel(context.Background())
		quiet := h.quiet
		h.quiet = func() { cancel(); quiet() }
		h.coord = newCoordinator(h)
		go h.coord.run(alive)
	}
	return h.register(ctx)
}

// abandon has the coordinator of an elastic job over several hosts know of a failure of
// this launcher. It does not wait.
func (h *host) abandon(e Exit) {
	if h.reg == nil {
		return
	}
	h.reg.update(func(b *heartbeat) {
		if b.Leaving = e.How; h.cfg.Node == 0 {
			b.Leaving, b.Fatal = "", &e
		}
	})
}

// stopEarly closes a host's part in a job in which it has started no ranks.
func (h *host) stopEarly(why string) {
	if h.reg != nil {
		h.reg.last(why)
	}
	h.close()
}

// beat gives signs of life to node 0, or watches for those of the others, until
// a host is lost.
func (h *host) beat(ctx context.Context) {
	seen, since := make([]int64, h.cfg.Nodes), make([]time.Time, h.cfg.Nodes)
	for i := range since {
		since[i] = time.Now()
	}
	for {
		if lost := h.pulse(ctx, seen, since); lost != nil {
			if ctx.Err() == nil {
				h.gone <- *lost
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(time.Second, h.cfg.LostTime/4)):
		}
	}
}

// pulse is one beat. It returns the host that is lost.
func (h *host) pulse(ctx context.Context, seen []int64, since []time.Time) *Exit {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.LostTime)
	defer cancel()
	if h.cfg.Node > 0 {
		if _, err := h.own.Add(ctx, "beat/"+strconv.Itoa(h.cfg.Node), 1); err != nil {
			return &Exit{Rank: -1, Code: 1, How: "node 0 is lost: " + err.Error()}
		}
		return nil
	}
	for n := 1; n < h.cfg.Nodes; n++ {
		count, err := h.own.Add(ctx, "beat/"+strconv.Itoa(n), 0)
		if err != nil || count != seen[n] {
			seen[n], since[n] = count, time.Now()
		}
		if silent := time.Since(since[n]); silent > h.cfg.LostTime {
			return &Exit{Rank: -1, Node: n, Code: 1, How: fmt.Sprintf("node %d is lost: no sign of it for %v", n, silent.Round(time.Second))}
		}
	}
	return nil
}

func (h *host) open(ctx context.Context) error {
	config := store.Config{Secret: []byte(h.cfg.Secret), Logger: h.cfg.Logger}
	if h.cfg.encrypted() {
		var err error
		if h.cert, h.key, err = tcp.DeriveJobCertificate(h.cfg.Secret); err != nil {
			return &Error{"the job's certificate", err}
		}
		config.Cert, config.Key = h.cert, h.key
	}
	if h.cfg.Node > 0 {
		client, err := store.Dial(ctx, h.cfg.Addr, config)
		if err != nil {
			return &Error{"the store of node 0", err}
		}
		h.all, h.closers = client, append(h.closers, client.Close)
		return nil
	}
	server, err := listen(ctx, h.cfg.Addr, config)
	if err != nil {
		return &Error{"the store", err}
	}
	h.all, h.closers = server.Store(), append(h.closers, server.Close)
	h.storeAddr = withPort(h.cfg.Addr, server.Addr())
	if !h.cfg.Torch {
		return nil
	}
	if err := h.openPlain(ctx, h.cfg.TorchAddr); err != nil {
		return err
	}
	h.closers = append(h.closers, func() error { return h.plain.Close() })
	h.torchAddr = withPort(h.cfg.TorchAddr, h.plain.Addr())
	return nil
}

// listen opens the store where the other hosts look for it. That may be a name
// that does not resolve here, or not yet, or an address that is passed on to this
// host: then it is the same port of all interfaces.
func listen(ctx context.Context, addr string, config store.Config) (*store.Server, error) {
	s, err := store.Listen(ctx, addr, config)
	if err == nil || config.Cert == nil || !errors.As(err, new(*net.DNSError)) && !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return s, err
	}
	_, port, _ := net.SplitHostPort(addr)
	config.Logger.Info("tutti: the store's address is not this host's own; it listens on all interfaces", "addr", addr, "reason", err)
	return store.Listen(ctx, ":"+port, config)
}

// openPlain opens the plain store for PyTorch.
func (h *host) openPlain(ctx context.Context, addr string) error {
	plain, err := store.Listen(ctx, addr, store.Config{Plain: true, Logger: h.cfg.Logger})
	if err != nil {
		return &Error{"the plain store for PyTorch", err}
	}
	h.plain = plain
	return nil
}

// withPort is an address with the port that was really taken.
func withPort(addr string, taken net.Addr) string {
	name, _, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(name, strconv.Itoa(taken.(*net.TCPAddr).Port))
}

// sameNodes makes sure that all hosts say the same of Nodes.
func (h *host) sameNodes(ctx context.Context) error {
	mine := strconv.Itoa(h.cfg.Nodes)
	if theirs, err := h.own.CompareAndSet(ctx, "nodes", nil, []byte(mine)); err != nil {
		return &Error{"the store", err}
	} else if string(theirs) != mine {
		return h.turnedAway(ctx, fmt.Sprintf("it believes in %s hosts, this job has %s", mine, theirs))
	}
	return nil
}

// count tells the other hosts how many ranks this one has, and learns theirs.
func (h *host) count(ctx context.Context) error {
	node := strconv.Itoa(h.cfg.Node)
	if err := h.sameNodes(ctx); err != nil {
		return err
	}
	held, err := claim.Take(ctx, h.own, "here/"+node, claim.Options{Using: func(ctx context.Context, _ string) bool { return h.begun(ctx) }})
	if taken := (*claim.TakenError)(nil); errors.As(err, &taken) {
		return h.turnedAway(ctx, fmt.Sprintf("node %s is here already: %s", node, taken.Holder))
	} else if err != nil {
		return &Error{"the store", err}
	}
	if h.begun(ctx) {
		return h.turnedAway(ctx, fmt.Sprintf("the job has begun, and the launcher of node %s has ended since", node))
	}
	outer := ctx
	ctx, stop := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		if err := held.Keep(ctx); err != nil {
			stop(err)
		}
	})
	err = h.meet(ctx)
	lost := (*claim.LostError)(nil)
	if err != nil && errors.As(context.Cause(ctx), &lost) {
		err = &Error{"it cannot join", lost}
	}
	stop(nil)
	keeping.Wait()
	if err == nil {
		if e := held.Confirm(outer); errors.As(e, &lost) {
			err = &Error{"it cannot join", lost}
		} else if e != nil {
			err = &Error{"the store", e}
		}
	}
	if err != nil && lost == nil { // another launcher may come in its place
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = h.own.Delete(ctx, "ranks/"+node)
		held.Release(ctx)
	}
	return err
}

// begun reports whether the launchers of all hosts have come.
func (h *host) begun(ctx context.Context) bool {
	keys := make([]string, h.cfg.Nodes)
	for n := range keys {
		keys[n] = "ranks/" + strconv.Itoa(n)
	}
	all, err := h.own.Check(ctx, keys...)
	return err == nil && all
}

// meet waits for the launchers of the other hosts.
func (h *host) meet(ctx context.Context) error {
	node := strconv.Itoa(h.cfg.Node)
	err := h.own.Set(ctx, "ranks/"+node, []byte(strconv.Itoa(h.cfg.Ranks)))
	if h.torchAddr != "" {
		err = errors.Join(err, h.own.Set(ctx, "torch", []byte(h.torchAddr)))
	}
	if err != nil {
		return &Error{"the store", err}
	}
	for n := range h.cfg.Nodes {
		text, err := h.own.Get(ctx, "ranks/"+strconv.Itoa(n))
		if err != nil {
			return &Error{fmt.Sprintf("node %d of %d has not come", n, h.cfg.Nodes), err}
		}
		ranks, err := strconv.Atoi(string(text))
		if err != nil || ranks < 1 || ranks > maxRanks {
			return &Error{"the store", fmt.Errorf("node %d says that it has %q ranks; it must be 1 to %d", n, text, maxRanks)}
		}
		if n < h.cfg.Node {
			h.base += ranks
		}
		h.size += ranks
	}
	if h.cfg.Torch && h.cfg.Node > 0 {
		addr, err := h.own.Get(ctx, "torch")
		if err != nil {
			return &Error{"node 0 has no plain store; give it the same flags", err}
		}
		h.torchAddr = string(addr)
	}
	return nil
}

// turnedAway tells the job that this host is not one of it, and why.
func (h *host) turnedAway(ctx context.Context, why string) error {
	name, _ := os.Hostname() // for people
	_ = h.own.Push(ctx, "refused", fmt.Appendf(nil, "node %d, process %d on %s: %s", h.cfg.Node, os.Getpid(), name, why))
	return &Error{"it cannot join", errors.New(why)}
}

// hear logs who is refused, as told in a part of the store, until ctx ends.
func (h *host) hear(ctx context.Context, s store.Store, text string) {
	for {
		why, err := s.Pop(ctx, "refused")
		if err != nil {
			return
		}
		h.cfg.Logger.Warn(text, "reason", string(why))
	}
}

// admit lets ranks in: it says how many there are, before anybody can be wrong
// about it, and logs who is refused until ctx ends.
func (h *host) admit(ctx context.Context, epoch int) error {
	if h.cfg.Node > 0 {
		return nil
	}
	ranks := h.ranks(epoch)
	if err := ranks.Set(ctx, "size", []byte(strconv.Itoa(h.size))); err != nil {
		return err
	}
	go h.hear(ctx, ranks, "tutti: refused a rank")
	return nil
}

// master returns where PyTorch programs meet in an attempt: node 0 says it.
func (h *host) master(ctx context.Context, epoch int) (string, error) {
	key := fmt.Sprintf("%d/master", epoch)
	if h.cfg.Node > 0 {
		addr, err := h.own.Get(ctx, key)
		return string(addr), err
	}
	addr, err := h.meeting(ctx, epoch)
	if err != nil {
		return "", err
	}
	return addr, h.own.Set(ctx, key, []byte(addr))
}

// meeting is the plain store, empty in every attempt because PyTorch uses the
// same keys in all of them; or, if there is none, a port of node 0 that is free
// for rank 0 to use.
func (h *host) meeting(ctx context.Context, epoch int) (string, error) {
	if h.plain != nil {
		if epoch == 0 {
			return h.torchAddr, nil
		}
		_ = h.plain.Close() // those who used it have ended
		return h.torchAddr, h.openPlain(ctx, h.torchAddr)
	}
	var lc net.ListenConfig
	name, _, _ := net.SplitHostPort(h.storeAddr)
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(name, "0"))
	if err != nil {
		return "", err
	}
	return withPort(h.storeAddr, l.Addr()), l.Close()
}

// announce tells all hosts of an attempt's first failure, and returns what was
// the first.
func (h *host) announce(epoch int, e Exit) Exit {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	mine, err := json.Marshal(e)
	if err != nil {
		return e
	}
	text, err := h.own.CompareAndSet(ctx, fmt.Sprintf("%d/failed", epoch), nil, mine)
	if err != nil {
		return e
	}
	first, err := decodeExit(text)
	if err != nil {
		return e
	}
	return first
}

// watch tells of a failure on another host.
func (h *host) watch(ctx context.Context, epoch int) <-chan Exit {
	news := make(chan Exit, 1)
	if h.cfg.Nodes == 1 {
		return news
	}
	go func() {
		text, err := h.own.Get(ctx, fmt.Sprintf("%d/failed", epoch))
		var e Exit
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			e = Exit{Rank: -1, Code: 1, How: "the store of node 0 is gone: " + err.Error()}
		default:
			if e, err = decodeExit(text); err != nil {
				e = Exit{Rank: -1, Code: 1, How: "another host failed: " + err.Error()}
			}
		}
		news <- e
	}()
	return news
}

// decodeExit reads what another host says of the first failure. A code that no
// process can have would make this one exit with another, possibly 0.
func decodeExit(text []byte) (e Exit, err error) {
	if err := json.Unmarshal(text, &e); err != nil {
		return Exit{}, err
	}
	if err := e.check(); err != nil {
		return Exit{}, err
	}
	return e, nil
}

// check finds ends that no process can have.
func (e *Exit) check() error {
	if e.Code < 0 || e.Code > 255 || e.Rank < -1 || e.Replacement < 0 {
		return fmt.Errorf("code %d of rank %d, replacement %d, is not possible", e.Code, e.Rank, e.Replacement)
	}
	return nil
}

// verdict returns the first failure of an attempt that all hosts have ended,
// wherever it was; nil if there was none.
func (h *host) verdict(epoch int) *Exit {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	failed, err := h.own.Check(ctx, fmt.Sprintf("%d/failed", epoch))
	if err != nil {
		return &Exit{Rank: -1, Code: 1, How: "the store of node 0 is gone: " + err.Error()}
	}
	if !failed {
		return nil
	}
	e := h.announce(epoch, Exit{})
	return &e
}

// leave waits for the other hosts, so that the store outlives their last look
// at it.
func (h *host) leave() {
	if h.reg != nil {
		h.leaveHosts()
	} else if h.cfg.Nodes > 1 {
		ctx, cancel := context.WithTimeout(context.Background(), h.patience())
		defer cancel()
		_ = h.own.Barrier(ctx, "left", h.cfg.Nodes)
	}
	h.close()
}

// leaveHosts is leave in an elastic job over several hosts.
func (h *host) leaveHosts() {
	h.reg.last("its launcher has ended")
	if h.coord != nil {
		select {
		case <-h.coord.empty:
		case <-time.After(h.patience()):
		}
	}
}

// patience is how long to wait for the others when all is over.
func (h *host) patience() time.Duration {
	if h.alone {
		return time.Second
	}
	return closeTime
}

func (h *host) close() {
	h.quiet()
	for _, f := range h.closers {
		_ = f()
	}
}
