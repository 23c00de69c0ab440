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

// A group is some of the job's ranks.
type group struct {
	j       *Job
	name    string
	members []int // by their numbers in the job
	rank    int   // this process's number in the group
	hosts   []int // by rank in the group: the lowest rank of the same host
	e       engine.Engine
	local   *shm.Engine      // of this host's ranks; nil if it is alone
	boards  *segment.Segment // theirs; nil: none

	mu    sync.Mutex
	made  bool            // the engine can be told of failures; guarded by mu
	ended *engine.Failure // the first one before that; guarded by mu
}

// group makes this process's side of a group. All members do, with the same
// name.
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
	// From here on, so that nobody is waited for who is lost while the group is being made.
	j.member.Watch(name, members, func(f *engine.Failure) { g.end(f, cancel) })
	if err := g.make(making, len(first)); err != nil {
		return nil, errors.Join(err, g.boards.Close())
	}
	g.mu.Lock()
	g.made = true
	f := g.ended
	g.mu.Unlock()
	if f != nil {
		g.e.Fail(f)
	}
	return g.e, nil
}

// end ends the group, or its making, because of a failure that this process was told of.
func (g *group) end(f *engine.Failure, cancel context.CancelCauseFunc) {
	g.j.blame(g.members, f)
	g.mu.Lock()
	made := g.made
	if !made && g.ended == nil {
		g.ended = f
	}
	g.mu.Unlock()
	if made {
		g.e.Fail(f)
	} else {
		cancel(f)
	}
}

// make picks the engine: shared memory if all are on one host, the network if
// nobody shares one, and otherwise both.
func (g *group) make(ctx context.Context, hosts int) error {
	switch hosts {
	case 1:
		return g.makeShared(ctx)
	case len(g.members):
		w, err := g.wire("", g.members, g.fail)
		if err != nil {
			return err
		}
		g.e = &networked{Engine: w, g: g, post: g.j.sentry.add(g.name, g.members, w)}
		return nil
	}
	return g.makeBoth(ctx)
}

func (g *group) makeShared(ctx context.Context) error {
	messages, err := g.wire("", g.members, nil)
	if err != nil {
		return err
	}
	g.local, err = g.shared(ctx, g.members, messages, g.fail, g.close)
	if err != nil {
		return errors.Join(err, messages.Close())
	}
	g.e = g.local
	return nil
}

// makeBoth makes an engine of three: one for this host, one for the first ranks
// of all hosts, and one for all.
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
	local, err := g.shared(ctx, near, hier.Mute{}, nil, nothing)
	if err != nil {
		return err
	}
	g.local, opt.Local = local, local
	if opt.All, err = g.wire("", g.members, nil); err != nil {
		return err
	}
	var p *post
	if slices.Contains(first, g.j.cfg.Rank) {
		w, err := g.wire(leadersSuffix, first, nil)
		if err != nil {
			return errors.Join(err, opt.All.Close())
		}
		opt.Leaders, p = w, g.j.sentry.add(g.name+" leaders", first, w)
	}
	g.e = &networked{Engine: hier.New(opt), g: g, post: p}
	return nil
}

// shared makes an engine over shared memory for ranks of this host.
func (g *group) shared(ctx context.Context, members []int, messages engine.Engine,
	onFail func(*engine.Failure), onClose func() error,
) (*shm.Engine, error) {
	opt := shm.Options{Timeout: g.j.cfg.Timeout}
	var err error
	if g.boards, err = g.share(ctx, g.name+" board", members, shm.SharedBytes(len(members), opt)); err != nil {
		return nil, err
	}
	return shm.NewShared(shm.Shared{
		Options: opt, Rank: slices.Index(members, g.j.cfg.Rank), Memory: parts(g.boards, len(members)), CPUMasks: g.j.cores(members), Messages: messages,
		OnFail: onFail, Sub: g.sub, Alloc: g.alloc, OnClose: onClose, ReadProcess: g.j.peek(members), Ended: g.j.processEnded(members),
		Excuse:       g.j.excuse(members),
		OnUnreadable: func(reader int, reason error) { g.j.unreadable(members[reader], reason) },
	}), nil
}

// cores are the processors that each of some ranks may use.
func (j *Job) cores(members []int) (masks [][]byte) {
	for _, r := range members {
		masks = append(masks, j.peers[r].cores)
	}
	return masks
}

// wire makes an engine over the network for some of the ranks.
func (g *group) wire(suffix string, members []int, onFail func(*engine.Failure)) (*network.Engine, error) {
	j := g.j
	peers := make([][]string, len(members))
	hosts := make([]int, len(members))
	for i, r := range members {
		peers[i] = j.peers[r].addrs
		hosts[i] = slices.IndexFunc(members, func(s int) bool { return j.hosts[s] == j.hosts[r] })
	}
	mesh, err := j.listener.Mesh(tcp.MeshOptions{
		Group: tcp.Group(j.mac(j.key, "group", g.name+suffix)[:16]), Rank: slices.Index(members, j.cfg.Rank), Peers: peers, CPUMasks: j.cores(members),
	})
	if err != nil {
		return nil, err
	}
	return network.New(mesh, network.Options{
		Timeout: j.cfg.Timeout, Reproducible: j.cfg.Reproducible, Hosts: hosts, OnFail: onFail, Sub: g.sub,
		Excuse: j.excuse(members),
	}), nil
}

// networked gives back what the group was made of when its engine is closed.
type networked struct {
	engine.Engine
	g    *group
	post *post // nil: this rank does not speak to other hosts
	once sync.Once
}

// Run carries out calls, while the sentry looks.
func (n *networked) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	if n.post == nil {
		return n.Engine.Run(ctx, seq, calls)
	}
	n.post.busy.Store(true)
	err := n.Engine.Run(ctx, seq, calls)
	n.post.busy.Store(false)
	return err
}

// MarkWaits is the engine's.
func (n *networked) MarkWaits(m *wait.FirstWait) { engine.MarkWaits(n.Engine, m) }

// ReserveProxyCPUs is the engine's.
func (n *networked) ReserveProxyCPUs() bool { return engine.ReserveProxyCPUs(n.Engine) }

// Behind is the engine's.
func (n *networked) Behind() []int { return engine.Behind(n.Engine) }

// Close says goodbye to the other ranks, once.
func (n *networked) Close() (err error) {
	n.once.Do(func() {
		if n.post != nil {
			n.g.j.sentry.remove(n.post)
		}
		err = errors.Join(n.Engine.Close(), n.g.close())
	})
	return err
}

// fail tells all of a failure that began here.
func (g *group) fail(f *engine.Failure) {
	first := g.j.member.Report(g.name, f)
	g.j.blame(g.members, first)
	if first != f {
		g.e.Fail(first)
	}
}

func (g *group) close() error {
	g.j.member.Unwatch(g.name)
	return errors.Join(g.boards.Close(), g.j.done())
}

// share makes memory for members that are all on this host: a part of so many bytes for each,
// which that member writes. The first of them makes it, under a name that is used once, and
// passes it to the others. It returns when all have it, so that it may leave the job then. A
// member that is alone needs nothing that others could map, which is not to be had everywhere.
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
		err = told(ctx, err)
	}
	return nil, errors.Join(fmt.Errorf("memory that rank %d of the job shares: %w", first, err), s.Close())
}

// parts are the addresses of a segment's parts.
func parts(s *segment.Segment, n int) []unsafe.Pointer {
	list := make([]unsafe.Pointer, n)
	for i := range list {
		list[i] = s.Part(i)
	}
	return list
}

// lossTime is how long a rank that finds a process gone waits for the control channel to
// say so: the control channel says it to all.
const lossTime = time.Second

// told waits for a group's end, and returns why it came.
func told(ctx context.Context, otherwise error) error {
	t := time.NewTimer(lossTime)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return otherwise
	}
}

// sub makes a group of some of this one's ranks.
func (g *group) sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	ranks := make([]int, len(members))
	for i, m := range members {
		ranks[i] = g.members[m]
	}
	name := engine.GroupName(g.name, seq, members[0])
	return engine.Form(ctx, g.e, members, func(ctx context.Context) (engine.Engine, error) {
		ctx, cancel := g.bound(ctx)
		defer cancel()
		g.j.mu.Lock()
		g.j.groups++
		g.j.mu.Unlock()
		e, err := g.j.group(ctx, name, ranks)
		if err != nil {
			g.j.member.Unwatch(name)
			return nil, errors.Join(err, g.j.done())
		}
		return e, nil
	})
}

// bound gives what is no operation of an engine the time of one.
func (g *group) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if t := g.j.cfg.Timeout; t > 0 {
		return context.WithTimeoutCause(ctx, t, fmt.Errorf("%w: it has not come in %v", engine.ErrTimeout, t))
	}
	return context.WithCancel(ctx)
}

// alloc makes memory that outlives the group, and that all members on this host
// map.
func (g *group) alloc(ctx context.Context, seq uint64, bytes int) (*engine.Region, error) {
	var near []int
	for i, r := range g.members {
		if g.hosts[i] == g.hosts[g.rank] {
			near = append(near, r)
		}
	}
	during, cancel := engine.While(ctx, g.e)
	defer cancel()
	during, stop := g.bound(during)
	defer stop()
	mapped, err := g.share(during, fmt.Sprintf("%s memory %d", g.name, seq), near, bytes)
	if err != nil {
		return nil, engine.Spoil(ctx, g.e, engine.Facts{Event: engine.SharingFailed}, err)
	}
	memory := parts(mapped, len(near))
	g.local.AddRegion(shm.Region{ID: seq, Base: memory, Bytes: bytes})
	return &engine.Region{Ptr: memory[slices.Index(near, g.j.cfg.Rank)], Bytes: bytes, Mapped: true, Free: func() error {
		g.local.DropRegion(seq)
		return mapped.Close()
	}}, nil
}
