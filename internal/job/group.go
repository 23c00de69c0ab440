package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/hier"
	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/segment"
	"github.com/tutti-go/tutti/internal/transport/tcp"
	"github.com/tutti-go/tutti/internal/wait"
)

// A group is a subset of the job's ranks with its engine.
type group struct {
	j       *Job
	name    string
	members []int // by rank in the group: the rank in the job
	rank    int   // this process's rank in the group
	hosts   []int // by rank in the group: the lowest rank of the same host
	e       engine.Engine
	local   *shm.Engine      // engine of this host's members; nil if this rank is alone on its host
	memory  *segment.Segment // of local; nil: none

	mu      sync.Mutex
	made    bool            // e is ready for Fail; guarded by mu
	endedBy *engine.Failure // the first failure before made; guarded by mu
}

// group makes this process's side of a group. All members call it with the same name. A loss or failure of a
// member, which endGroup learns of on another goroutine, cancels the making or fails the new engine; g.mu
// orders the two. After an error the caller ends the watch of the group.
func (j *Job) group(ctx context.Context, name string, members []int) (engine.Engine, error) {
	g := &group{j: j, name: name, members: members, rank: slices.Index(members, j.cfg.Rank)}
	first := make(map[int]int)
	for i, r := range members {
		if _, ok := first[j.hosts[r]]; !ok {
			first[j.hosts[r]] = i
		}
		g.hosts = append(g.hosts, first[j.hosts[r]])
	}
	making, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Watch before the engine is made, so that no member waits for a lost rank in makeEngine.
	j.member.Watch(name, members, func(f *engine.Failure) { g.endGroup(f, cancel) })
	if err := g.makeEngine(making, len(first)); err != nil {
		return nil, errors.Join(err, g.memory.Close())
	}
	g.mu.Lock()
	g.made = true
	f := g.endedBy
	g.mu.Unlock()
	if f != nil {
		g.e.Fail(f)
	}
	return g.e, nil
}

// endGroup fails the group, or cancels its making, because of a failure that this process was
// notified of.
func (g *group) endGroup(f *engine.Failure, cancel context.CancelCauseFunc) {
	g.j.recordFailure(g.members, f)
	g.mu.Lock()
	made := g.made
	if !made && g.endedBy == nil {
		g.endedBy = f
	}
	g.mu.Unlock()
	if made {
		g.e.Fail(f)
	} else {
		cancel(f)
	}
}

// makeEngine selects the engine: shared memory if all members are on one host, the network if no
// two members share a host, and both otherwise.
func (g *group) makeEngine(ctx context.Context, hosts int) error {
	switch hosts {
	case 1:
		return g.makeShared(ctx)
	case len(g.members):
		w, err := g.networkEngine("", g.members, g.fail)
		if err != nil {
			return err
		}
		g.e = &networked{Engine: w, g: g, reported: g.j.positions.add(g.name, g.members, w)}
		return nil
	}
	return g.makeBoth(ctx)
}

// makeShared makes an engine over shared memory.
func (g *group) makeShared(ctx context.Context) error {
	e, err := g.sharedEngine(ctx, g.members, g.fail, g.close)
	if err == nil {
		g.local, g.e = e, e
	}
	return err
}

// makeBoth combines three engines: one for the members on this host, one for the first member of each host,
// and one for all members. After an error it has closed the network engines; Job.group frees the shared
// memory.
func (g *group) makeBoth(ctx context.Context) error {
	var near, first []int
	for i, r := range g.members {
		if g.hosts[i] == g.hosts[g.rank] {
			near = append(near, r)
		}
		if g.hosts[i] == i {
			first = append(first, r)
		}
	}
	opt := hier.Options{
		Rank: g.rank, Hosts: g.hosts, Reproducible: g.j.cfg.Reproducible, OnFail: g.fail, Sub: g.sub, Alloc: g.alloc,
	}
	nothing := func() error { return nil }
	local, err := g.sharedEngine(ctx, near, nil, nothing)
	if err != nil {
		return err
	}
	g.local, opt.Local = local, local
	if opt.All, err = g.networkEngine("", g.members, nil); err != nil {
		return err
	}
	var p *reportedGroup
	if slices.Contains(first, g.j.cfg.Rank) {
		w, err := g.networkEngine(leadersSuffix, first, nil)
		if err != nil {
			return errors.Join(err, opt.All.Close())
		}
		opt.Leaders, p = w, g.j.positions.add(g.name+leadersSuffix, first, w)
	}
	g.e = &networked{Engine: hier.New(opt), g: g, reported: p}
	return nil
}

// sharedEngine makes an engine over shared memory for members on this host. It waits until they have mapped
// the memory, which g.memory holds.
func (g *group) sharedEngine(ctx context.Context, members []int, onFail func(*engine.Failure), onClose func() error) (*shm.Engine, error) {
	opt := shm.Options{Timeout: g.j.cfg.Timeout}
	var err error
	if g.memory, err = g.share(ctx, g.name+" board", members, shm.SharedBytes(len(members), opt)); err != nil {
		return nil, err
	}
	return shm.NewShared(shm.Shared{
		Options: opt, Rank: slices.Index(members, g.j.cfg.Rank), Memory: parts(g.memory, len(members)), CPUMasks: g.j.cpuMasks(members),
		OnFail: onFail, Sub: g.sub, Alloc: g.alloc, OnClose: onClose, ReadProcess: g.j.processReader(members), Ended: g.j.processEnded(members),
		Excuse:       g.j.exitReason(members),
		OnUnreadable: func(reader int, reason error) { g.j.unreadable(members[reader], reason) },
	}), nil
}

// cpuMasks returns the CPU masks of the members.
func (j *Job) cpuMasks(members []int) (masks [][]byte) {
	for _, r := range members {
		masks = append(masks, j.peers[r].cpus)
	}
	return masks
}

// networkEngine makes an engine over TCP for the given members. It connects to no member yet. suffix tells
// several meshes of one group apart.
func (g *group) networkEngine(suffix string, members []int, onFail func(*engine.Failure)) (*network.Engine, error) {
	j := g.j
	peers := make([][]string, len(members))
	hosts := make([]int, len(members))
	for i, r := range members {
		peers[i] = j.peers[r].addrs
		hosts[i] = slices.IndexFunc(members, func(s int) bool { return j.hosts[s] == j.hosts[r] })
	}
	mesh, err := j.listener.Mesh(tcp.MeshOptions{
		Group: tcp.Group(j.deriveKey(j.key, "group", g.name+suffix)[:16]), Rank: slices.Index(members, j.cfg.Rank), Peers: peers, CPUMasks: j.cpuMasks(members),
	})
	if err != nil {
		return nil, err
	}
	return network.New(mesh, network.Options{
		Timeout: j.cfg.Timeout, Reproducible: j.cfg.Reproducible, Hosts: hosts, OnFail: onFail, Sub: g.sub,
		Excuse: j.exitReason(members),
	}), nil
}

// networked wraps an engine that uses the network. Its Close releases the resources of the group.
type networked struct {
	engine.Engine
	g        *group
	reported *reportedGroup // nil: this rank does not communicate with other hosts
	once     sync.Once
}

// Run runs calls and marks the group as busy for the positionReporter.
func (n *networked) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	if n.reported == nil {
		return n.Engine.Run(ctx, seq, calls)
	}
	n.reported.busy.Store(true)
	err := n.Engine.Run(ctx, seq, calls)
	n.reported.busy.Store(false)
	return err
}

// MarkWaits forwards to the wrapped engine.
func (n *networked) MarkWaits(m *wait.FirstWait) { engine.MarkWaits(n.Engine, m) }

// ReserveProxyCPUs forwards to the wrapped engine.
func (n *networked) ReserveProxyCPUs() bool { return engine.ReserveProxyCPUs(n.Engine) }

// Behind forwards to the wrapped engine.
func (n *networked) Behind() []int { return engine.Behind(n.Engine) }

// Close closes the engine and leaves the group, once.
func (n *networked) Close() (err error) {
	n.once.Do(func() {
		if n.reported != nil {
			n.g.j.positions.remove(n.reported)
		}
		err = errors.Join(n.Engine.Close(), n.g.close())
	})
	return err
}

// fail reports a failure that began in this process. If another cause was first, the engine fails
// with that one.
func (g *group) fail(f *engine.Failure) {
	first := g.j.member.Report(g.name, f)
	g.j.recordFailure(g.members, first)
	if first != f {
		g.e.Fail(first)
	}
}

func (g *group) close() error {
	g.j.member.Unwatch(g.name)
	return errors.Join(g.memory.Close(), g.j.groupClosed())
}

// share makes memory with a part of the given size for each member; all members are on this host.
// Each member writes its own part only. The first member makes the memory and passes it to the
// others under a name that is used once. It returns when all members have the memory, so that it
// may leave the job at once. A member that is alone uses private memory, because some systems do
// not allow memory files.
func (g *group) share(ctx context.Context, name string, members []int, bytes int) (s *segment.Segment, err error) {
	j, first, own := g.j, members[0], slices.Index(members, g.j.cfg.Rank)
	if len(members) == 1 {
		return segment.Private(bytes)
	}
	if own == 0 {
		if s, err = segment.New("tutti "+name, len(members), bytes, own); err != nil {
			return nil, err
		}
		err = j.memory.listener.Pass(ctx, name, s, members[1:])
	} else {
		var fd int
		if fd, err = segment.Fetch(ctx, j.peers[first].listener, j.memory.key, name, j.cfg.Rank); err == nil {
			s, err = segment.Map(fd, len(members), bytes, own)
		}
	}
	if err == nil {
		err = s.CloseFD()
	}
	if err == nil {
		return s, nil
	}
	if errors.Is(err, segment.ErrGone) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = awaitCause(ctx, err) // prefer the cause that all ranks report
	}
	return nil, errors.Join(fmt.Errorf("sharing memory of rank %d of the job: %w", first, err), s.Close())
}

// parts returns the addresses of a segment's parts.
func parts(s *segment.Segment, n int) []unsafe.Pointer {
	list := make([]unsafe.Pointer, n)
	for i := range list {
		list[i] = s.Part(i)
	}
	return list
}

// causeTime is how long a rank that finds a process exited waits for the control channel to report
// the cause, so that all ranks report the same cause.
const causeTime = time.Second

// awaitCause waits for the end of a group and returns its cause. It returns otherwise after
// causeTime.
func awaitCause(ctx context.Context, otherwise error) error {
	t := time.NewTimer(causeTime)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return otherwise
	}
}

// sub makes a group of some members of this group. It waits for the other members, at most for the group's
// timeout. If it cannot be made, engine.Form fails this group. j.mu guards the number of open groups.
func (g *group) sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	ranks := make([]int, len(members))
	for i, m := range members {
		ranks[i] = g.members[m]
	}
	name := engine.GroupName(g.name, seq, members[0])
	return engine.Form(ctx, g.e, members, func(ctx context.Context) (engine.Engine, error) {
		ctx, cancel := g.withTimeout(ctx)
		defer cancel()
		g.j.mu.Lock()
		g.j.groups++
		g.j.mu.Unlock()
		e, err := g.j.group(ctx, name, ranks)
		if err != nil {
			g.j.member.Unwatch(name)
			return nil, errors.Join(err, g.j.groupClosed())
		}
		return e, nil
	})
}

// withTimeout applies the timeout of operations to work that is not an operation of an engine.
func (g *group) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if t := g.j.cfg.Timeout; t > 0 {
		return context.WithTimeoutCause(ctx, t, fmt.Errorf("%w: not complete after %v", engine.ErrTimeout, t))
	}
	return context.WithCancel(ctx)
}

// alloc makes memory that outlives the group, mapped by all members on this host. It waits for them until ctx
// ends, the timeout passes or the group fails. An error fails the group.
func (g *group) alloc(ctx context.Context, seq uint64, bytes int) (*engine.Region, error) {
	var local []int
	for i, r := range g.members {
		if g.hosts[i] == g.hosts[g.rank] {
			local = append(local, r)
		}
	}
	during, cancel := engine.UntilFailure(ctx, g.e)
	defer cancel()
	during, stop := g.withTimeout(during)
	defer stop()
	mapped, err := g.share(during, fmt.Sprintf("%s memory %d", g.name, seq), local, bytes)
	if err != nil {
		return nil, engine.FailGroup(ctx, g.e, engine.Facts{Event: engine.SharingFailed}, err)
	}
	memory := parts(mapped, len(local))
	g.local.AddRegion(shm.Region{ID: seq, Base: memory, Bytes: bytes})
	return &engine.Region{Ptr: memory[slices.Index(local, g.j.cfg.Rank)], Bytes: bytes, Mapped: true, Free: func() error {
		g.local.DropRegion(seq)
		return mapped.Close()
	}}, nil
}
