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
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/engine/wire"
	"github.com/tutti-go/tutti/internal/segment"
	"github.com/tutti-go/tutti/internal/transport/tcp"
	"github.com/tutti-go/tutti/internal/wait"
)

// A group is some of the job's ranks.
type group struct {
	j       *Job
	name    string
	scope   string // of the segments that the group is made of: the name of the group it is a part of
	members []int  // by their numbers in the job
	rank    int    // this process's number in the group
	hosts   []int  // by rank in the group: the lowest rank of the same host
	e       engine.Engine
	local   *shm.Engine // of this host's ranks; nil if it is alone
	boards  mappings
}

// group makes this process's side of a group. All members do, with the same
// name. Of is the name of the group that it is a part of.
func (j *Job) group(ctx context.Context, of, name string, members []int) (engine.Engine, error) {
	g := &group{j: j, name: name, scope: of, members: members, rank: slices.Index(members, j.cfg.Rank)}
	g.eachLink(func(l *segment.Link) { l.Open(name) }) // before any member can use the group
	first := make(map[int]int)
	for i, r := range members {
		if _, ok := first[j.hosts[r]]; !ok {
			first[j.hosts[r]] = i
		}
		g.hosts = append(g.hosts, first[j.hosts[r]])
	}
	if err := g.make(ctx, len(first)); err != nil {
		g.dropSegments()
		return nil, errors.Join(err, g.boards.close())
	}
	j.member.Watch(name, members, func(f *engine.Failure) {
		j.blame(members, f)
		g.e.Fail(f)
		g.dropSegments()
	})
	return g.e, nil
}

// eachLink calls f for the links to the group's members on this host.
func (g *group) eachLink(f func(*segment.Link)) {
	for _, r := range g.members {
		if l := g.j.links[r]; l != nil {
			f(l)
		}
	}
}

// dropSegments gives up the segments that members pass for parts and memory of this group.
// It is called when the group has failed or is closed: this rank takes none any more, but
// the other members may still pass some.
func (g *group) dropSegments() { g.eachLink(func(l *segment.Link) { l.Drop(g.name) }) }

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
	memory, err := g.share(ctx, g.scope, g.name+" board", members, shm.SharedBytes(len(members), opt), &g.boards)
	if err != nil {
		return nil, err
	}
	return shm.NewShared(shm.Shared{
		Options: opt, Rank: slices.Index(members, g.j.cfg.Rank), Memory: memory, Cores: g.j.cores(members), Messages: messages,
		OnFail: onFail, Sub: g.sub, Alloc: g.alloc, OnClose: onClose, Peek: g.j.peek(members), Excuse: g.j.excuse(members),
		OnUnreadable: func(reader int, reason error) { g.j.unreadable(members[reader], reason) },
	}), nil
}

// cores are the processors that each of some ranks may use.
func (j *Job) cores(members []int) (masks [][]byte) {
	for _, r := range members {
		masks = append(masks, j.peers[r].Cores)
	}
	return masks
}

// wire makes an engine over the network for some of the ranks.
func (g *group) wire(suffix string, members []int, onFail func(*engine.Failure)) (*wire.Engine, error) {
	j := g.j
	peers := make([][]string, len(members))
	hosts := make([]int, len(members))
	for i, r := range members {
		peers[i] = j.peers[r].Addrs
		hosts[i] = slices.IndexFunc(members, func(s int) bool { return j.hosts[s] == j.hosts[r] })
	}
	mesh, err := j.listener.Mesh(tcp.MeshOptions{
		Group: tcp.Group(j.mac(j.key, "group", g.name+suffix)[:16]), Rank: slices.Index(members, j.cfg.Rank), Peers: peers, Cores: j.cores(members),
	})
	if err != nil {
		return nil, err
	}
	return wire.New(mesh, wire.Options{
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
func (n *networked) MarkWaits(m *wait.Mark) { engine.MarkWaits(n.Engine, m) }

// Beside is the engine's.
func (n *networked) Beside() bool { return engine.Beside(n.Engine) }

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
	g.dropSegments()
	if first != f {
		g.e.Fail(first)
	}
}

func (g *group) close() error {
	g.j.member.Unwatch(g.name)
	g.dropSegments()
	return errors.Join(g.boards.close(), g.j.done())
}

// share exchanges segments of so many bytes between members that are all on
// this host. Each writes its own. What it maps it adds to a list. A member that is
// alone needs nothing that others could map, which is not to be had everywhere.
// Scope is the name of the group whose operation this is.
func (g *group) share(ctx context.Context, scope, key string, members []int, bytes int, to *mappings) ([]unsafe.Pointer, error) {
	var own *segment.Segment
	var err error
	if len(members) == 1 {
		own, err = segment.Private(bytes)
	} else {
		own, err = segment.New("tutti "+key, bytes)
	}
	if err != nil {
		return nil, err
	}
	*to = append(*to, own)
	memory := make([]unsafe.Pointer, len(members))
	fails := func(rank int, err error) error {
		if errors.Is(err, segment.ErrGone) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = told(ctx, err)
		}
		return fmt.Errorf("rank %d of the job: %w", rank, err)
	}
	for i, r := range members {
		if r == g.j.cfg.Rank {
			memory[i] = own.Ptr()
		} else if err := g.j.links[r].Pass(scope, key, own); err != nil {
			return nil, fails(r, err)
		}
	}
	for i, r := range members {
		if r == g.j.cfg.Rank {
			continue
		}
		s, err := g.j.links[r].Take(ctx, scope, key)
		if err != nil {
			return nil, fails(r, err)
		}
		*to = append(*to, s)
		if s.Len() < bytes {
			return nil, fmt.Errorf("rank %d of the job has passed memory of %d bytes in place of %d", r, s.Len(), bytes)
		}
		memory[i] = s.Ptr()
		if err := s.CloseFD(); err != nil {
			return nil, err
		}
	}
	return memory, own.CloseFD()
}

// lossTime is how long a rank that finds a process gone waits to be notified of it by
// the control channel, which notifies all ranks alike.
const lossTime = time.Second

// told waits for a group's end, and says why it came.
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
		e, err := g.j.group(ctx, g.name, name, ranks)
		if err != nil {
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
	var mapped mappings
	memory, err := g.share(during, g.name, fmt.Sprintf("%s memory %d", g.name, seq), near, bytes, &mapped)
	if err != nil {
		return nil, engine.Spoil(ctx, g.e, "memory could not be shared", errors.Join(err, mapped.close()))
	}
	g.local.AddRegion(shm.Region{ID: seq, Base: memory, Bytes: bytes})
	return &engine.Region{Ptr: memory[slices.Index(near, g.j.cfg.Rank)], Bytes: bytes, Mapped: true, Free: func() error {
		g.local.DropRegion(seq)
		return mapped.close()
	}}, nil
}

// mappings are segments that are given back together.
type mappings []*segment.Segment

func (m *mappings) close() error {
	var errs []error
	for _, s := range *m {
		errs = append(errs, s.Close())
	}
	*m = nil
	return errors.Join(errs...)
}
