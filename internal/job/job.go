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

// Config says which rank joins which job. All ranks have the same values, except for Rank,
// Interface, Listener and Logger.
type Config struct {
	Rank, Size int
	// Addr is the "host:port" where rank 0 listens.
	Addr string
	// Listener, on rank 0, replaces a listener on Addr.
	Listener net.Listener
	// Secret is known only to the ranks of the job.
	Secret []byte
	// Timeout bounds each operation. Zero or less: no bound.
	Timeout time.Duration
	// Interface names the network interfaces to use; see tcp.Options. It is ignored if Addr is on
	// the loopback.
	Interface string
	// TLS, if not nil, encrypts all network traffic, including the control channel.
	TLS *tls.Config
	// NoEncryption allows unencrypted data to leave the host. If it is false, a job without TLS must have
	// its Addr on the loopback.
	NoEncryption bool
	// Network disables shared memory between the ranks of a host.
	Network bool
	// Host distinguishes this host from others with the same HostHint. Ranks share a host only if
	// their Host is equal.
	Host string
	// HostTimeout is how long another rank's host may not answer, approximately, before the rank is
	// lost. Zero: 30 s.
	HostTimeout time.Duration
	// Look is the interval at which a rank checks whether it is stuck. Zero: 50 ms.
	StuckInterval time.Duration
	// Reproducible makes the bits of a result independent of the placement of the ranks.
	Reproducible bool
	// Verify adds a checksum to network traffic.
	Verify bool
	// ABI describes what the callers of this package rely on in all ranks; see package abi.
	ABI string
	// Options are other options that must be equal on all ranks, by the names that users know.
	// Options that are not set are omitted.
	Options map[string]string
	// Logger must not be nil.
	Logger *slog.Logger
}

// A Job is one process's part in a job. It is safe for concurrent use.
type Job struct {
	world     engine.Engine
	cfg       Config
	member    *control.Member
	listener  *tcp.Listener
	key       []byte // of this job; identifies its groups to the listeners of other ranks
	memory    hostMemory
	peers     []rankInfo
	hosts     []int  // by rank: the lowest rank of the same host
	reads     []bool // by rank: it can read the memory of the next rank of its host
	positions positionReporter
	closeCtx  context.Context // ends when Close of the member must not wait for other ranks any more
	closeNow  context.CancelFunc

	firstFailure   atomic.Pointer[firstFailure] // nil: no failure yet
	unreadableOnce sync.Once                    // logs once that other processes cannot read this process's memory; see unreadable

	mu     sync.Mutex
	groups int // open groups; guarded by mu
}

// Names that all ranks use.
const (
	worldGroup    = "world"    // the group of all ranks
	hostsKey      = "meet"     // followed by the round: the Gather of findHosts
	hostName      = "host"     // followed by the round: the memory of a host
	leadersSuffix = " leaders" // appended to a group's name: the group of the first rank of each host
)

// Enter joins the job. This process leaves the job when the group of World and all groups made from
// it are closed.
func Enter(ctx context.Context, cfg Config) (*Job, error) {
	j := &Job{cfg: cfg, groups: 1}
	j.closeCtx, j.closeNow = context.WithCancel(context.Background())
	j.positions.j = j
	world, err := j.join(ctx)
	if err != nil {
		return nil, errors.Join(err, j.Abandon(err))
	}
	j.world = world
	return j, nil
}

// Abandon leaves a job in which this rank cannot take part. Ranks that have joined are notified of
// the reason, so that they do not wait for this rank. Abandon does not wait for them.
func (j *Job) Abandon(why error) error {
	j.closeNow()
	f := &engine.Failure{
		Kind: engine.ErrRankLost, Rank: j.cfg.Rank, Lost: []int{j.cfg.Rank}, Left: true,
		Facts: engine.Facts{Event: engine.RanksLost, Loss: engine.JoinFailed, Text: why.Error()},
	}
	if j.world != nil {
		j.world.Fail(f)
		return j.world.Close()
	}
	if j.member != nil {
		_ = j.member.Report(worldGroup, f) // all ranks are notified of the first cause
	}
	return j.leave()
}

// World returns this rank's side of the group of all ranks. The job ends when it and all groups
// made from it are closed.
func (j *Job) World() engine.Engine { return j.world }

// Lost returns the lost ranks, as far as this rank was notified.
func (j *Job) Lost() []int { return j.member.Lost() }

// Left returns the ranks that have left the job in good order, as far as this rank was notified.
func (j *Job) Left() []int { return j.member.Left() }

// Hasten lets this process leave the job without waiting for other ranks, now or when its last
// group is closed.
func (j *Job) Hasten() { j.closeNow() }

// join joins the control channel, compares the ranks, determines the hosts and forms the group of
// all ranks. If it fails because the group has failed, it returns the first cause. The caller calls
// Abandon after an error.
func (j *Job) join(ctx context.Context) (engine.Engine, error) {
	cfg := &j.cfg
	mine, err := j.open()
	if err != nil {
		return nil, err
	}
	ver := version(cfg.ABI)
	first, err := protocol1Blob(ver, cfg.Options)
	if err != nil {
		return nil, err
	}
	j.member, err = control.Join(ctx, control.Config{
		Rank: cfg.Rank, Size: cfg.Size, Addr: cfg.Addr, Listener: cfg.Listener, Secret: cfg.Secret, TLS: cfg.TLS,
		Version: ver, Blob: mine.encode(), Protocol1Blob: first, HostTimeout: cfg.HostTimeout, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	j.peers = make([]rankInfo, cfg.Size)
	all := make([]int, cfg.Size)
	for r, blob := range j.member.Blobs() {
		all[r] = r
		if j.peers[r], err = decodeRankInfo(blob); err != nil {
			return nil, fmt.Errorf("the data of rank %d from Join cannot be decoded: %w", r, err)
		}
	}
	if err := checkOptions(j.peers); err != nil {
		return nil, err
	}
	if err := checkOneNetwork(cfg.Addr, j.peers); err != nil {
		return nil, err
	}
	j.key = j.member.Key()
	j.listener.Control(cfg.Rank, cfg.Size, j.member.Accept)
	if err := j.listener.Open(hex.EncodeToString(j.deriveKey(j.key, "job", "")), j.deriveKey(cfg.Secret, "data", string(j.key))); err != nil {
		return nil, err
	}
	var world engine.Engine
	if err = j.findHosts(ctx, all); err == nil {
		world, err = j.group(ctx, worldGroup, all)
	}
	if err == nil {
		j.member.Reach(func(ctx context.Context, rank int) (net.Conn, error) {
			return j.listener.DialControl(ctx, rank, j.peers[rank].addrs)
		})
	}
	if first := j.member.Cause(worldGroup); err != nil && first != nil && !errors.Is(err, context.Cause(ctx)) {
		err = first // the error of this rank is a consequence of first
	}
	return world, err
}

// open makes the listeners of this process and returns its rankInfo. Only a data listener that cannot be made
// is an error. Without shared memory it logs the reason, and the rank uses TCP.
func (j *Job) open() (rankInfo, error) {
	cfg := &j.cfg
	var err error
	if j.listener, err = j.listen(); err != nil {
		return rankInfo{}, err
	}
	c := rankInfo{addrs: j.listener.Addrs(), network: networkHint(), cpus: affinity.Mask(affinity.Allowed()), options: cfg.Options}
	if cfg.Network {
		return c, nil
	}
	if err := j.memory.open(); errors.Is(err, segment.ErrUnsupported) {
		cfg.Logger.Info("tutti: no shared memory with other processes", "reason", err)
		return c, nil
	} else if err != nil {
		cfg.Logger.Warn("tutti: shared memory is not available; ranks of this host will use TCP, which is slower (run tutti doctor for the reason)", "reason", err)
		return c, nil
	}
	c.host, c.listener, c.identity = hostHint(cfg.Host), j.memory.listener.Addr(), j.memory.identity
	return c, nil
}

// groupClosed counts a group as closed, and leaves the job after the last group.
func (j *Job) groupClosed() error {
	j.mu.Lock()
	j.groups--
	last := j.groups == 0
	j.mu.Unlock()
	if !last {
		return nil
	}
	return j.leave()
}

// leave leaves the control channel and closes the listeners. It is called once, after the last
// group is closed or when Join has failed.
func (j *Job) leave() error {
	var errs []error
	j.positions.close()
	if j.member != nil {
		errs = append(errs, j.member.Close(j.closeCtx))
		j.closeNow() // releases closeCtx
	}
	errs = append(errs, j.memory.close())
	if j.listener != nil {
		errs = append(errs, j.listener.Close())
	}
	return errors.Join(errs...)
}
