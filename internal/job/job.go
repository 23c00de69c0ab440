package job

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/cores"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/segment"
	"github.com/tutti-go/tutti/internal/transport/tcp"
	"github.com/tutti-go/tutti/internal/watch"
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
	member   *watch.Member
	listener *tcp.Listener
	key      []byte        // of this job: names its groups to the listeners of other ranks
	door     *segment.Door // nil: none can be had
	proof    *segment.Segment
	proofs   map[int]*segment.Segment // of the neighbours
	life     *segment.Life            // in the proof; nil: none can be had
	links    map[int]*segment.Link
	peers    []card
	hosts    []int // by rank: the lowest rank of the same host
	sign     *segment.Sign
	reads    []map[int]bool // by rank: whose memory it can read
	sentry   sentry
	hurry    context.Context // ends when nobody is to be waited for any more
	hasten   context.CancelFunc

	blamed atomic.Pointer[blame] // what came first
	logged sync.Once             // this process's memory cannot be read by others: see unreadable

	mu     sync.Mutex
	groups int // that are not closed
}

// A card is what a rank tells the others of itself.
type card struct {
	Addrs []string           `json:"addrs"`
	Host  string             `json:"host"` // a hint, see segment.HostHint
	Door  segment.Invitation `json:"door"`
	// Sign is how others find out that they can read this process's memory.
	Sign *segment.Sign `json:"sign,omitempty"`
	// Network is a hint at the network namespace, and the kernel that it is of.
	Network string `json:"network,omitempty"`
	// Cores are the processors that this process may use.
	Cores []byte `json:"cores,omitempty"`
	// Alike is Config's.
	Alike map[string]string `json:"alike,omitempty"`
}

// Names that all ranks use.
const (
	worldGroup    = "world"    // the group of all ranks
	meetKey       = "meet"     // the exchange of acquaintances
	leadersSuffix = " leaders" // added to a group's name: that of the first ranks of its hosts
)

// Join joins the job and returns this rank's side of the group of all its
// ranks. When that and all groups made of it are closed, the job is left.
func Join(ctx context.Context, cfg Config) (engine.Engine, error) {
	j, err := Enter(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return j.world, nil
}

// Enter is Join for those who want to know more of the job than its engine.
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
		Reason: fmt.Sprintf("rank %d has left: its Join failed: %v", j.cfg.Rank, why),
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
	blob, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	runs := version(cfg.ABI)
	first, err := firstBlob(runs, cfg.Alike)
	if err != nil {
		return nil, err
	}
	j.member, err = watch.Join(ctx, watch.Config{
		Rank: cfg.Rank, Size: cfg.Size, Addr: cfg.Addr, Listener: cfg.Listener, Secret: cfg.Secret, TLS: cfg.TLS,
		Version: runs, Blob: blob, FirstBlob: first, Silence: cfg.Silence, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	j.peers = make([]card, cfg.Size)
	all := make([]int, cfg.Size)
	for r, blob := range j.member.Blobs() {
		all[r] = r
		if err := json.Unmarshal(blob, &j.peers[r]); err != nil {
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
		world, err = j.group(ctx, segment.Root, worldGroup, all)
	}
	if err == nil {
		j.member.Reach(func(ctx context.Context, rank int) (net.Conn, error) {
			return j.listener.DialControl(ctx, rank, j.peers[rank].Addrs)
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
	c := card{Addrs: j.listener.Addrs(), Network: segment.HostHint(), Cores: cores.Mask(cores.Allowed()), Alike: cfg.Alike}
	if cfg.Network {
		return c, nil
	}
	if err := j.openDoor(); errors.Is(err, segment.ErrUnsupported) {
		cfg.Logger.Info("tutti: no shared memory with other processes", "reason", err)
		return c, nil
	} else if err != nil {
		cfg.Logger.Warn("tutti: shared memory cannot be had here; ranks of this host will use TCP, which is slower (tutti doctor says more)", "reason", err)
		return c, nil
	}
	c.Host, c.Door = cfg.Host+" "+segment.HostHint(), j.door.Invitation()
	j.sign = segment.NewSign() // kept as long as the job
	c.Sign = j.sign
	return c, nil
}

// meet finds out who shares this host. That is so for ranks whose processes
// have all met each other; the rest use the network.
func (j *Job) meet(ctx context.Context, all []int) error {
	self := j.cfg.Rank
	near := make(map[int]segment.Invitation)
	if j.door != nil {
		for r, p := range j.peers {
			if r != self && p.Door.Name != "" && p.Host == j.peers[self].Host {
				near[r] = p.Door
			}
		}
	}
	met := []int{self}
	if len(near) > 0 {
		var errs map[int]error
		j.links, errs = j.door.Meet(ctx, self, near, segment.News{Note: func(int, []byte) {}, Gone: func(int) {}})
		if err := j.prove(ctx, errs); err != nil {
			return err
		}
		if len(errs) > 0 {
			strangers := slices.Sorted(maps.Keys(errs))
			j.cfg.Logger.Warn("tutti: no shared memory with ranks that seem to be near; TCP is used, which is slower (tutti doctor says more)",
				"ranks", strangers, "reason", errs[strangers[0]])
		}
		for r := range j.links {
			met = append(met, r)
		}
	}
	blob, err := json.Marshal(acquaintance{met, j.readable()})
	if err != nil {
		return err
	}
	blobs, err := j.member.Gather(ctx, meetKey, all, blob)
	if err != nil {
		return err
	}
	reach := make([]map[int]bool, len(all))
	j.reads = make([]map[int]bool, len(all))
	for r, blob := range blobs {
		var a acquaintance
		if err := json.Unmarshal(blob, &a); err != nil {
			return err
		}
		reach[r], j.reads[r] = set(a.Met), set(a.Reads)
	}
	j.hosts = hosts(reach)
	j.member.Hosts(j.hosts)
	return nil
}

// An acquaintance is what a rank has found out about its neighbours.
type acquaintance struct {
	Met   []int `json:"met"`
	Reads []int `json:"reads,omitempty"` // whose memory it can read
}

func set(list []int) map[int]bool {
	m := make(map[int]bool)
	for _, r := range list {
		m[r] = true
	}
	return m
}

// hosts divides ranks into those who can all reach each other. Each host is
// named by its lowest rank.
func hosts(reach []map[int]bool) []int {
	host := make([]int, len(reach))
	for r := range reach {
		host[r] = r
		for first := range r {
			if host[first] == first && fits(reach, host[:r], first, r) {
				host[r] = first
				break
			}
		}
	}
	return host
}

// fits reports whether r and all ranks of a host so far reach each other.
func fits(reach []map[int]bool, host []int, first, r int) bool {
	for s, h := range host {
		if h == first && (!reach[r][s] || !reach[s][r]) {
			return false
		}
	}
	return true
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
	for _, l := range j.links {
		errs = append(errs, l.Close())
	}
	if j.door != nil {
		errs = append(errs, j.door.Close())
	}
	for _, s := range j.proofs {
		errs = append(errs, s.Close())
	}
	if j.life != nil {
		j.life.Close()
	}
	if j.proof != nil {
		errs = append(errs, j.proof.Close())
	}
	if j.listener != nil {
		errs = append(errs, j.listener.Close())
	}
	return errors.Join(errs...)
}
