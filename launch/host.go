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
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/store"
)

// A host is this host's part in the job: its connection to the store and the data that the hosts
// share there. Only the goroutine of Run, or a goroutine that Run waits for, changes the fields.
// Other goroutines read cfg, all and own, and use lost.
type host struct {
	cfg       *Config
	base      int // number of this host's first rank
	size      int // ranks in the whole job
	storeAddr string
	torchAddr string             // address of the plain store; "": there is none
	plain     *store.Server      // set on node 0 if there is a plain store
	cert, key []byte             // nil: connections are not encrypted
	all       store.Store        // the whole store
	own       store.Store        // the launchers' part of it
	closers   []func() error     // close the stores
	lost      chan Exit          // receives the loss of another host
	stop      context.CancelFunc // ends the host's goroutines
	peerLost  bool               // another host may not reach the end of the job

	// Used in an elastic job over several hosts.
	reg               *registration
	coord             *coordinator // set on node 0
	attempt           int          // number of the next attempt
	starts            int          // start messages that this launcher has waited for
	pastEvents        int          // events of the attempt before this launcher joined it
	firstReplacements []int        // replacement numbers of the first processes, by local rank; nil: the host starts with the job
}

// maxRanks bounds the number of ranks of one host.
const maxRanks = 1 << 20

// maxCloseTime is how long a launcher waits for the others at the end of the job.
const maxCloseTime = 10 * time.Second

// openHost opens the store, or connects to it, and learns the number of ranks of the other hosts.
// It waits for them for at most JoinTime. After an error everything is closed. Its goroutines run
// until host.stop.
func openHost(ctx context.Context, cfg *Config) (*host, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.JoinTime)
	defer cancel()
	h := &host{cfg: cfg, storeAddr: cfg.Addr, lost: make(chan Exit, 1), stop: func() {}}
	err := h.open(ctx)
	if err == nil {
		h.own = store.Prefix(h.all, jobstore.Launchers)
		if err = h.sameElastic(ctx); err == nil && cfg.elasticOverHosts() {
			err = h.coordinate(ctx)
		} else if err == nil {
			err = h.countRanks(ctx)
		}
	}
	if err != nil {
		h.close()
		return nil, err
	}
	alive, cancel := context.WithCancel(context.Background())
	previous := h.stop
	h.stop = func() { cancel(); previous() }
	if cfg.Nodes > 1 && h.reg == nil {
		go h.sendHeartbeats(alive)
	}
	if cfg.Node == 0 {
		go h.logRefusals(alive, h.own, "tutti: refused a host")
	}
	return h, nil
}

// sameElastic compares Min and Max of this host with those of node 0. A difference is an error
// here, and a warning on node 0.
func (h *host) sameElastic(ctx context.Context) error {
	mine := h.cfg.elastic()
	if h.cfg.Node == 0 {
		if err := h.own.Set(ctx, jobstore.Elastic, []byte(mine)); err != nil {
			return &Error{"the store", err}
		}
		return nil
	}
	theirs, err := h.own.Get(ctx, jobstore.Elastic)
	if err != nil {
		return &Error{"the store", err}
	}
	if string(theirs) != mine {
		return h.reportRefusal(ctx, fmt.Sprintf("it was started %s, this job %s; start all hosts with the same flags", mine, theirs))
	}
	return nil
}

// coordinate joins an elastic job over several hosts.
func (h *host) coordinate(ctx context.Context) error {
	if err := h.sameNodes(ctx); err != nil {
		return err
	}
	if h.cfg.Node == 0 {
		alive, cancel := context.WithCancel(context.Background())
		previous := h.stop
		h.stop = func() { cancel(); previous() }
		h.coord = newCoordinator(h)
		go h.coord.run(alive)
	}
	return h.register(ctx)
}

// reportLauncherFailure tells the coordinator of an elastic job over several hosts that
// this launcher has failed. It does not wait.
func (h *host) reportLauncherFailure(e Exit) {
	if h.reg == nil {
		return
	}
	h.reg.update(func(b *heartbeat) {
		if b.Leaving = e.How; h.cfg.Node == 0 {
			b.Leaving, b.Fatal = "", &e
		}
	})
}

// stopEarly closes a host's part in a job before it starts ranks.
func (h *host) stopEarly(why string) {
	if h.reg != nil {
		h.reg.sendLast(why)
	}
	h.close()
}

// sendHeartbeats exchanges heartbeats with node 0 until ctx ends or a host is lost. It runs in a
// goroutine of its own, and reports a lost host once, through h.lost.
func (h *host) sendHeartbeats(ctx context.Context) {
	seen, since := make([]int64, h.cfg.Nodes), make([]time.Time, h.cfg.Nodes)
	for i := range since {
		since[i] = time.Now()
	}
	for {
		if lost := h.exchangeHeartbeats(ctx, seen, since); lost != nil {
			if ctx.Err() == nil {
				h.lost <- *lost
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

// exchangeHeartbeats sends one heartbeat to node 0. On node 0 it checks the heartbeats of the other
// hosts and returns the host that is lost; nil if there is none. seen and since, by node, belong to
// the goroutine of sendHeartbeats.
func (h *host) exchangeHeartbeats(ctx context.Context, seen []int64, since []time.Time) *Exit {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.LostTime)
	defer cancel()
	if h.cfg.Node > 0 {
		if _, err := h.own.Add(ctx, jobstore.Heartbeat(h.cfg.Node), 1); err != nil {
			return &Exit{Rank: -1, Code: 1, How: "node 0 is lost: " + err.Error()}
		}
		return nil
	}
	for n := 1; n < h.cfg.Nodes; n++ {
		count, err := h.own.Add(ctx, jobstore.Heartbeat(n), 0)
		if err != nil || count != seen[n] {
			seen[n], since[n] = count, time.Now()
		}
		if silent := time.Since(since[n]); silent > h.cfg.LostTime {
			return &Exit{Rank: -1, Node: n, Code: 1, How: fmt.Sprintf("node %d is lost: no heartbeat for %v", n, silent.Round(time.Second))}
		}
	}
	return nil
}

// open opens the stores on node 0, or connects to node 0's store until ctx ends. After an error
// closers closes what was opened.
func (h *host) open(ctx context.Context) error {
	config := store.Config{Secret: []byte(h.cfg.Secret), Logger: h.cfg.Logger}
	if h.cfg.encrypted() {
		var err error
		if h.cert, h.key, err = jobtls.DeriveCertificate(h.cfg.Secret); err != nil {
			return &Error{"the job's certificate", err}
		}
		config.Cert, config.Key = h.cert, h.key
	}
	if h.cfg.Node > 0 {
		client, err := store.Dial(ctx, h.cfg.Addr, config)
		if err != nil {
			return &Error{"the store of node 0", fmt.Errorf("%w; start tutti run --node 0 there with the same --addr", err)}
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

// listen opens the store at the address that the other hosts use. This host may be
// unable to listen there: the name may not resolve here, or the address may be
// forwarded to this host. An encrypted store then listens on the same port of all
// interfaces.
func listen(ctx context.Context, addr string, config store.Config) (*store.Server, error) {
	s, err := store.Listen(ctx, addr, config)
	if err == nil || config.Cert == nil || !errors.As(err, new(*net.DNSError)) && !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return s, err
	}
	_, port, _ := net.SplitHostPort(addr)
	config.Logger.Info("tutti: the store's address is not this host's own; it listens on all interfaces", "addr", addr, "reason", err)
	return store.Listen(ctx, ":"+port, config)
}

// openPlain opens the unauthenticated store for PyTorch.
func (h *host) openPlain(ctx context.Context, addr string) error {
	plain, err := store.Listen(ctx, addr, store.Config{Plain: true, Logger: h.cfg.Logger})
	if err != nil {
		return &Error{"the plain store for PyTorch", err}
	}
	h.plain = plain
	return nil
}

// withPort replaces the port of addr by the one the listener got.
func withPort(addr string, taken net.Addr) string {
	name, _, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(name, strconv.Itoa(taken.(*net.TCPAddr).Port))
}

// sameNodes compares Nodes of this host with the other hosts.
func (h *host) sameNodes(ctx context.Context) error {
	mine := strconv.Itoa(h.cfg.Nodes)
	if theirs, err := h.own.CompareAndSet(ctx, jobstore.Nodes, nil, []byte(mine)); err != nil {
		return &Error{"the store", err}
	} else if string(theirs) != mine {
		return h.reportRefusal(ctx, fmt.Sprintf("it was started with --nodes %s, this job with --nodes %s", mine, theirs))
	}
	return nil
}

// countRanks exchanges the hosts' numbers of ranks through the store, and waits for all
// hosts until ctx ends. It claims this node's place in the job meanwhile, so that a second
// launcher with the same node number is refused. If it fails, it frees the place for
// another launcher, unless the claim itself was lost.
func (h *host) countRanks(ctx context.Context) error {
	node := h.cfg.Node
	if err := h.sameNodes(ctx); err != nil {
		return err
	}
	held, err := claim.Take(ctx, h.own, jobstore.Launcher(node), claim.Options{Using: func(ctx context.Context, _ string) bool { return h.hasBegun(ctx) }})
	if taken := (*claim.TakenError)(nil); errors.As(err, &taken) {
		return h.reportRefusal(ctx, fmt.Sprintf("node %d is already in the job: %s", node, taken.Holder))
	} else if err != nil {
		return &Error{"the store", err}
	}
	if h.hasBegun(ctx) {
		return h.reportRefusal(ctx, fmt.Sprintf("the job has begun, and the launcher of node %d has exited since", node))
	}
	// The goroutine renews the claim. If the claim is lost, it cancels ctx with the cause.
	outer := ctx
	ctx, stop := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		if err := held.Keep(ctx); err != nil {
			stop(err)
		}
	})
	err = h.exchangeRankCounts(ctx)
	lost := (*claim.LostError)(nil)
	if err != nil && errors.As(context.Cause(ctx), &lost) {
		err = &Error{"cannot join the job", lost}
	}
	stop(nil)
	keeping.Wait()
	if err == nil { // the claim may have been lost since the last renewal
		if e := held.Confirm(outer); errors.As(e, &lost) {
			err = &Error{"cannot join the job", lost}
		} else if e != nil {
			err = &Error{"the store", e}
		}
	}
	if err != nil && lost == nil { // another launcher may take the place
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = h.own.Delete(ctx, jobstore.NodeRanks(node))
		held.Release(ctx)
	}
	return err
}

// hasBegun reports whether the launchers of all hosts have registered.
func (h *host) hasBegun(ctx context.Context) bool {
	keys := make([]string, h.cfg.Nodes)
	for n := range keys {
		keys[n] = jobstore.NodeRanks(n)
	}
	all, err := h.own.Check(ctx, keys...)
	return err == nil && all
}

// exchangeRankCounts publishes this host's number of ranks, waits for the launchers of the other
// hosts until ctx ends, and sums their ranks into base and size. An impossible number is an error.
func (h *host) exchangeRankCounts(ctx context.Context) error {
	node := h.cfg.Node
	err := h.own.Set(ctx, jobstore.NodeRanks(node), []byte(strconv.Itoa(h.cfg.Ranks)))
	if h.torchAddr != "" {
		err = errors.Join(err, h.own.Set(ctx, jobstore.Torch, []byte(h.torchAddr)))
	}
	if err != nil {
		return &Error{"the store", err}
	}
	for n := range h.cfg.Nodes {
		text, err := h.own.Get(ctx, jobstore.NodeRanks(n))
		if err != nil {
			return &Error{fmt.Sprintf("node %d of %d has not connected; start tutti run --node %d there with the same --addr", n, h.cfg.Nodes, n), err}
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
		addr, err := h.own.Get(ctx, jobstore.Torch)
		if err != nil {
			return &Error{"node 0 has no plain store; give it the same flags", err}
		}
		h.torchAddr = string(addr)
	}
	return nil
}

// reportRefusal tells node 0 that this host cannot join, and returns the error.
func (h *host) reportRefusal(ctx context.Context, why string) error {
	name, _ := os.Hostname() // for people
	_ = h.own.Push(ctx, jobstore.Refused, fmt.Appendf(nil, "node %d, process %d on %s: %s", h.cfg.Node, os.Getpid(), name, why))
	return &Error{"cannot join the job", errors.New(why)}
}

// logRefusals logs the refusals that are queued in s until ctx ends.
func (h *host) logRefusals(ctx context.Context, s store.Store, text string) {
	for {
		why, err := s.Pop(ctx, jobstore.Refused)
		if err != nil {
			return
		}
		h.cfg.Logger.Warn(text, "reason", string(why))
	}
}

// openAttempt publishes the number of ranks, so that a rank with another number is
// refused. It logs refused ranks until ctx ends.
func (h *host) openAttempt(ctx context.Context, attempt int) error {
	if h.cfg.Node > 0 {
		return nil
	}
	ranks := h.rankStore(attempt)
	if err := ranks.Set(ctx, jobstore.Size, []byte(strconv.Itoa(h.size))); err != nil {
		return err
	}
	go h.logRefusals(ctx, ranks, "tutti: refused a rank")
	return nil
}

// masterAddr returns the address for PyTorch's rendezvous in an attempt, chosen by node
// 0.
func (h *host) masterAddr(ctx context.Context, attempt int) (string, error) {
	key := jobstore.Master(attempt)
	if h.cfg.Node > 0 {
		addr, err := h.own.Get(ctx, key)
		return string(addr), err
	}
	addr, err := h.newMasterAddr(ctx, attempt)
	if err != nil {
		return "", err
	}
	return addr, h.own.Set(ctx, key, []byte(addr))
}

// newMasterAddr returns the plain store's address. The store is emptied for each
// attempt, because PyTorch uses the same keys in all of them. Without a plain store,
// newMasterAddr returns a free port of node 0 for rank 0.
func (h *host) newMasterAddr(ctx context.Context, attempt int) (string, error) {
	if h.plain != nil {
		if attempt == 0 {
			return h.torchAddr, nil
		}
		_ = h.plain.Close() // its users have exited
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

// publishFailure publishes e as the first failure of an attempt. It returns the failure
// that was published first, or e if the store does not answer.
func (h *host) publishFailure(attempt int, e Exit) Exit {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	mine, err := json.Marshal(e)
	if err != nil {
		return e
	}
	text, err := h.own.CompareAndSet(ctx, jobstore.Failed(attempt), nil, mine)
	if err != nil {
		return e
	}
	first, err := decodeExit(text)
	if err != nil {
		return e
	}
	return first
}

// watchFailure returns a channel that receives the first failure that any host publishes, or the
// loss of the store. Its goroutine ends with ctx. With one host the channel never receives
// anything.
func (h *host) watchFailure(ctx context.Context, attempt int) <-chan Exit {
	failures := make(chan Exit, 1)
	if h.cfg.Nodes == 1 {
		return failures
	}
	go func() {
		text, err := h.own.Get(ctx, jobstore.Failed(attempt))
		var e Exit
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			e = Exit{Rank: -1, Code: 1, How: "the store of node 0 is lost: " + err.Error()}
		default:
			if e, err = decodeExit(text); err != nil {
				e = Exit{Rank: -1, Code: 1, How: "another host failed: " + err.Error()}
			}
		}
		failures <- e
	}()
	return failures
}

// decodeExit decodes a failure from another host. It refuses exit codes that no process
// can have: the launcher would truncate them, possibly to 0.
func decodeExit(text []byte) (e Exit, err error) {
	if err := json.Unmarshal(text, &e); err != nil {
		return Exit{}, err
	}
	if err := e.check(); err != nil {
		return Exit{}, err
	}
	return e, nil
}

// check refuses values that no process can have.
func (e *Exit) check() error {
	if e.Code < 0 || e.Code > 255 || e.Rank < -1 || e.Replacement < 0 {
		return fmt.Errorf("code %d of rank %d, replacement %d, is not possible", e.Code, e.Rank, e.Replacement)
	}
	return nil
}

// firstFailure returns the first failure on any host of an attempt that all hosts have
// ended; nil if there was none.
func (h *host) firstFailure(attempt int) *Exit {
	ctx, cancel := context.WithTimeout(context.Background(), maxCloseTime)
	defer cancel()
	failed, err := h.own.Check(ctx, jobstore.Failed(attempt))
	if err != nil {
		return &Exit{Rank: -1, Code: 1, How: "the store of node 0 is lost: " + err.Error()}
	}
	if !failed {
		return nil
	}
	e := h.publishFailure(attempt, Exit{})
	return &e
}

// leave waits for the other hosts, so that the store stays open for their last calls.
func (h *host) leave() {
	if h.reg != nil {
		h.leaveHosts()
	} else if h.cfg.Nodes > 1 {
		ctx, cancel := context.WithTimeout(context.Background(), h.closeTimeout())
		defer cancel()
		_ = h.own.Barrier(ctx, jobstore.Left, h.cfg.Nodes)
	}
	h.close()
}

// leaveHosts is leave in an elastic job over several hosts.
func (h *host) leaveHosts() {
	h.reg.sendLast("its launcher has ended")
	if h.coord != nil {
		select {
		case <-h.coord.allLeft:
		case <-time.After(h.closeTimeout()):
		}
	}
}

// closeTimeout is how long to wait for the other hosts at the end.
func (h *host) closeTimeout() time.Duration {
	if h.peerLost {
		return time.Second
	}
	return maxCloseTime
}

func (h *host) close() {
	h.stop()
	for _, f := range h.closers {
		_ = f()
	}
}
