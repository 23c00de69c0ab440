package job

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/control"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/segment"
	"github.com/tutti-go/tutti/internal/transport/tcp"
)

// Config says which rank joins which job. All ranks give the same values,
// except for Rank, Interface, Listener and Logger.
type Config struct {
	Rank, Size int
	// Addr is where rank 0 listens, "host:port".
	Addr string
	// Listener, on rank 0, is used in place of listening on Addr.
	Listener net.Listener
	// Secret is known to all ranks of the job and to nobody else.
	Secret []byte
	// Timeout bounds each operation. Zero or less: no bound.
	Timeout time.Duration
	// Interface names the network interfaces to use; see tcp.Options. A job whose
	// Addr is on the loopback uses no other.
	Interface string
	// TLS, if not nil, encrypts what goes over the network, the control channel
	// included.
	TLS *tls.Config
	// Plain says that without TLS, too, data may leave the host. If it is false, a job
	// without TLS must have its Addr on the loopback.
	Plain bool
	// Network keeps ranks that share a host from using shared memory.
	Network bool
	// Host names this host apart from others that look like it. Ranks share a
	// host only if they give the same.
	Host string
	// Silence is about how long another rank's host may not answer before the
	// rank is lost. Zero: 30 s.
	Silence time.Duration
	// Look is how often a rank looks whether it is stuck. Zero: 50 ms.
	Look time.Duration
	// Reproducible makes the bits of a result independent of where ranks are.
	Reproducible bool
	// Verify gives what goes over the network a checksum.
	Verify bool
	// ABI describes what callers of this package rely on in all ranks; see package
	// abi.
	ABI string
	// Alike are other options that all ranks must be given alike, by the names
	// that users know them by. What is not set is left out.
	Alike map[string]string
	// Logger must not be nil.
	Logger *slog.Logger
}

// A Job is one process's part in it. It is safe for concurrent use.
type Job struct {
	world    engine.Engine
	cfg      Config
	member   *control.Member
	listener *tcp.Listener
	key      []byte // of this job: names its groups to the listeners of other ranks
	memory   hostMemory
	peers    []card
	hosts    []int  // by rank: the lowest rank of the same host
	reads    []bool // by rank: it can read the memory of the next rank of its host
	sentry   sentry
	hurry    context.Context // ends when nobody is to be waited for any more
	hasten   context.CancelFunc

	blamed atomic.Pointer[blame] // what came first
	logged sync.Once             // this process's memory cannot be read by others: see unreadable

	mu     sync.Mutex
	groups int // that are not closed
}

// Names that all ranks use.
const (
	worldGroup    = "world"    // the group of all ranks
	meetKey       = "meet"     // with a round's number: the exchange of what ranks share
	hostName      = "host"     // with a round's number: the memory of a host
	leadersSuffix = " leaders" // added to a group's name: that of the first ranks of its hosts
)

// Enter joins the job. This process leaves it when the group that World returns, and
// all groups made of it, are closed.
func Enter(ctx context.Context, cfg Config) (*Job, error) {
	j := &Job{cfg: cfg, groups: 1}
	j.hurry, j.hasten = context.WithCancel(context.Background())
	j.sentry.j = j
	world, err := j.join(ctx)
	if err != nil {
		return nil, errors.Join(err, j.Abandon(err))
	}
	j.world = world
	return j, nil
}

// Abandon leaves a job that this rank cannot take part in. Other ranks that have joined
// are told why, so that they do not wait for this one. It waits for none of them.
func (j *Job) Abandon(why error) error {
	j.hasten()
	f := &engine.Failure{
		Kind: engine.ErrRankLost, Rank: j.cfg.Rank, Lost: []int{j.cfg.Rank}, Left: true,
		Facts: engine.Facts{Event: engine.RanksLost, Loss: engine.JoinFailed, Text: why.Error()},
	}
	if j.world != nil {
		j.world.Fail(f)
		return j.world.Close()
	}
	if j.member != nil {
		_ = j.member.Report(worldGroup, f) // the first cause, of which all are told
	}
	return j.leave()
}

// World is this rank's side of the group of all ranks. Who closes it, and all
// groups made of it, leaves the job.
func (j *Job) World() engine.Engine { return j.world }

// Lost returns the ranks that are known to be lost.
func (j *Job) Lost() []int { return j.member.Lost() }

// Left returns the ranks that are known to have left the job in good order.
func (j *Job) Left() []int { return j.member.Left() }

// Hasten has this process leave the job without waiting for the other ranks,
// now or when its last group is closed.
func (j *Job) Hasten() { j.hasten() }

func (j *Job) join(ctx context.Context) (engine.Engine, error) {
	cfg := &j.cfg
	mine, err := j.open()
	if err != nil {
		return nil, err
	}
	runs := version(cfg.ABI)
	first, err := firstBlob(runs, cfg.Alike)
	if err != nil {
		return nil, err
	}
	j.member, err = control.Join(ctx, control.Config{
		Rank: cfg.Rank, Size: cfg.Size, Addr: cfg.Addr, Listener: cfg.Listener, Secret: cfg.Secret, TLS: cfg.TLS,
		Version: runs, Blob: mine.encode(), FirstBlob: first, Silence: cfg.Silence, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	j.peers = make([]card, cfg.Size)
	all := make([]int, cfg.Size)
	for r, blob := range j.member.Blobs() {
		all[r] = r
		if j.peers[r], err = decodeCard(blob); err != nil {
			return nil, fmt.Errorf("rank %d said of itself what cannot be read: %w", r, err)
		}
	}
	if err := alike(j.peers); err != nil {
		return nil, err
	}
	if err := oneNetwork(cfg.Addr, j.peers); err != nil {
		return nil, err
	}
	j.key = j.member.Key()
	j.listener.Control(cfg.Rank, cfg.Size, j.member.Accept)
	if err := j.listener.Open(hex.EncodeToString(j.mac(j.key, "job", "")), j.mac(cfg.Secret, "data", string(j.key))); err != nil {
		return nil, err
	}
	var world engine.Engine
	if err = j.meet(ctx, all); err == nil {
		world, err = j.group(ctx, worldGroup, all)
	}
	if err == nil {
		j.member.Reach(func(ctx context.Context, rank int) (net.Conn, error) {
			return j.listener.DialControl(ctx, rank, j.peers[rank].addrs)
		})
	}
	if first := j.member.Cause(worldGroup); err != nil && first != nil && !errors.Is(err, context.Cause(ctx)) {
		err = first // of which what this rank has met is a consequence
	}
	return world, err
}

// open makes this process reachable.
func (j *Job) open() (card, error) {
	cfg := &j.cfg
	var err error
	if j.listener, err = j.listen(); err != nil {
		return card{}, err
	}
	c := card{addrs: j.listener.Addrs(), network: networkHint(), cores: affinity.Mask(affinity.Allowed()), alike: cfg.Alike}
	if cfg.Network {
		return c, nil
	}
	if err := j.memory.open(); errors.Is(err, segment.ErrUnsupported) {
		cfg.Logger.Info("tutti: no shared memory with other processes", "reason", err)
		return c, nil
	} else if err != nil {
		cfg.Logger.Warn("tutti: shared memory cannot be had here; ranks of this host will use TCP, which is slower (tutti doctor says more)", "reason", err)
		return c, nil
	}
	c.host, c.listener, c.sign = hostHint(cfg.Host), j.memory.listener.Addr(), j.memory.sign
	return c, nil
}

// done counts a group as closed, and leaves the job after the last.
func (j *Job) done() error {
	j.mu.Lock()
	j.groups--
	last := j.groups == 0
	j.mu.Unlock()
	if !last {
		return nil
	}
	return j.leave()
}

func (j *Job) leave() error {
	var errs []error
	j.sentry.close()
	if j.member != nil {
		errs = append(errs, j.member.Close(j.hurry))
		j.hasten() // gives its context back
	}
	errs = append(errs, j.memory.close())
	if j.listener != nil {
		errs = append(errs, j.listener.Close())
	}
	return errors.Join(errs...)
}
