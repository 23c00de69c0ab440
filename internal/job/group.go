package job

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/engine/wire"
	"github.com/tutti-go/tutti/internal/segment"
	"github.com/tutti-go/tutti/internal/transport/tcp"
)

// A group is some of the job's ranks.
type group struct {
	j       *job
	name    string
	members []int // by their numbers in the job
	rank    int   // this process's number in the group
	hosts   []int // by rank in the group: the lowest rank of the same host
	e       engine.Engine
	boards  mappings
}

// group makes this process's side of a group. All members do, with the same
// name.
func (j *job) group(ctx context.Context, name string, members []int) (engine.Engine, error) {
	g := &group{j: j, name: name, members: members, rank: slices.Index(members, j.cfg.Rank)}
	first := make(map[int]int)
	for i, r := range members {
		if _, ok := first[j.hosts[r]]; !ok {
			first[j.hosts[r]] = i
		}
		g.hosts = append(g.hosts, first[j.hosts[r]])
	}
	if err := g.make(ctx, len(first)); err != nil {
		return nil, errors.Join(err, g.boards.close())
	}
	j.member.Watch(name, members, g.e.Fail)
	return g.e, nil
}

// make picks the engine: shared memory if all are on one host, the network
// otherwise.
func (g *group) make(ctx context.Context, hosts int) error {
	w, err := g.wire(hosts > 1)
	if err != nil {
		return err
	}
	if hosts > 1 {
		g.e = &networked{w, g}
		return nil
	}
	memory, err := g.share(ctx, fmt.Sprintf("%s board", g.name), shm.SharedBytes(len(g.members), shm.Options{}), &g.boards)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	g.e = shm.NewShared(shm.Shared{
		Options: shm.Options{Timeout: g.j.cfg.Timeout}, Rank: g.rank, Memory: memory, Messages: w,
		OnFail: g.fail, Sub: g.sub, Alloc: g.alloc, OnClose: g.close,
	})
	return nil
}

// wire makes the engine over the network, on which messages go in any case.
// It reports failures itself only if it is the group's engine.
func (g *group) wire(alone bool) (*wire.Engine, error) {
	j := g.j
	peers := make([][]string, len(g.members))
	for i, r := range g.members {
		peers[i] = j.peers[r].Addrs
	}
	sum := sha256.Sum256([]byte(g.name))
	mesh, err := j.listener.Mesh(tcp.MeshOptions{Group: tcp.Group(sum[:16]), Rank: g.rank, Peers: peers})
	if err != nil {
		return nil, err
	}
	opt := wire.Options{Timeout: j.cfg.Timeout, Reproducible: j.cfg.Reproducible, Hosts: g.hosts, Sub: g.sub}
	if alone {
		opt.OnFail = g.fail
	}
	return wire.New(mesh, opt), nil
}

// networked gives back what the group was made of when its engine is closed.
type networked struct {
	*wire.Engine
	g *group
}

// Close says goodbye to the other ranks.
func (n *networked) Close() error { return errors.Join(n.Engine.Close(), n.g.close()) }

// fail tells all of a failure that began here.
func (g *group) fail(f *engine.Failure) {
	if first := g.j.member.Report(g.name, f); first != f {
		g.e.Fail(first)
	}
}

func (g *group) close() error {
	g.j.member.Unwatch(g.name)
	return errors.Join(g.boards.close(), g.j.done())
}

// share exchanges segments of so many bytes between the members, which are all
// on this host. Each writes its own. What it maps it adds to a list.
func (g *group) share(ctx context.Context, key string, bytes int, to *mappings) ([]unsafe.Pointer, error) {
	own, err := segment.New("tutti "+key, bytes)
	if err != nil {
		return nil, err
	}
	*to = append(*to, own)
	memory := make([]unsafe.Pointer, len(g.members))
	memory[g.rank] = own.Ptr()
	for i, r := range g.members {
		if i != g.rank {
			if err := g.j.links[r].Pass(key, own); err != nil {
				return nil, err
			}
		}
	}
	for i, r := range g.members {
		if i == g.rank {
			continue
		}
		s, err := g.j.links[r].Take(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", i, err)
		}
		*to = append(*to, s)
		memory[i] = s.Ptr()
		if err := s.CloseFD(); err != nil {
			return nil, err
		}
	}
	return memory, own.CloseFD()
}

// sub makes a group of some of this one's ranks.
func (g *group) sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	ranks := make([]int, len(members))
	for i, m := range members {
		ranks[i] = g.members[m]
	}
	g.j.mu.Lock()
	g.j.groups++
	g.j.mu.Unlock()
	e, err := g.j.group(ctx, fmt.Sprintf("%s/%d.%d", g.name, seq, members[0]), ranks)
	if err != nil {
		return nil, errors.Join(err, g.j.done())
	}
	return e, nil
}

// alloc makes memory that outlives the group, and that all members map.
func (g *group) alloc(ctx context.Context, seq uint64, bytes int) (*engine.Region, error) {
	var mapped mappings
	memory, err := g.share(ctx, fmt.Sprintf("%s memory %d", g.name, seq), bytes, &mapped)
	if err != nil {
		return nil, errors.Join(err, mapped.close())
	}
	e := g.e.(*shm.Engine)
	e.AddRegion(shm.Region{ID: seq, Base: memory, Bytes: bytes})
	return &engine.Region{Ptr: memory[g.rank], Bytes: bytes, Free: func() error {
		e.DropRegion(seq)
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
