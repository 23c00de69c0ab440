package torch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/nccl"
	"github.com/tutti-go/tutti/store"
)

const (
	// defaultPrefix stands before the default group's keys, unless the program has
	// given init_process_group a store of its own.
	defaultPrefix = "default_pg/"
	// defaultKey is where PyTorch puts the id of the default group's first
	// communicator.
	defaultKey = "0//cuda//0"
	// barrierKey counts the ranks that have come to init_process_group's own
	// barrier, which PyTorch has before 2.1, and with TORCH_DIST_INIT_BARRIER=1.
	barrierKey = "store_based_barrier_key:0"
	// mostRanks is how many ranks PyTorch has in a group before it makes several
	// ids for it, unless TORCH_NCCL_RANKS_PER_ROOT says otherwise.
	mostRanks = 128
	// askTime is how long a rank that has failed to join asks why.
	askTime = 2 * time.Second
)

// A custom is how a kind of job passes the communicator's id.
type custom struct {
	op     string
	keys   []string
	encode func(nccl.UniqueID) []byte
	decode func([]byte) (nccl.UniqueID, error)
	warm   bool // the first collective is an AllReduce of one number
}

// Join makes this process a rank of a torch.distributed group, by default the
// default group. It returns when the job's store is reached; the communicator is
// made by the first call, or by Connect. The caller closes the Group.
func Join(ctx context.Context, cfg Config) (*Group, error) {
	s, wrong := cfg.fill()
	if wrong == "" && cfg.Size > mostRanks {
		return nil, failed("torch.Join", cfg.Rank, tutti.ErrUnsupported,
			fmt.Sprintf("%d ranks; PyTorch joins more than %d in a way that Go ranks do not know", cfg.Size, mostRanks), nil)
	}
	c := custom{op: "torch.Join", encode: func(id nccl.UniqueID) []byte { return id[:] }, decode: rawID}
	var groups []string // what may stand before the default group's keys
	for _, p := range s.prefixes {
		groups = append(groups, p+defaultPrefix, p)
		if cfg.IDKey != "" {
			c.keys = append(c.keys, p+cfg.IDKey)
		}
	}
	if cfg.IDKey == "" {
		for _, p := range groups {
			c.keys = append(c.keys, p+defaultKey)
		}
	}
	g, err := join(ctx, cfg, s, wrong, c)
	if err != nil {
		return nil, err
	}
	if cfg.IDKey == "" {
		if err := g.passBarrier(ctx, groups); err != nil {
			return nil, errors.Join(failed(c.op, cfg.Rank, kindOf(err), "the store failed", err), g.Close())
		}
	}
	return g, nil
}

func rawID(value []byte) (nccl.UniqueID, error) {
	if len(value) != len(nccl.UniqueID{}) {
		return nccl.UniqueID{}, fmt.Errorf("%d bytes are no id", len(value))
	}
	return nccl.UniqueID(value), nil
}

// join reaches the store and counts this process in.
func join(ctx context.Context, cfg Config, s site, wrong string, how custom) (*Group, error) {
	if wrong == "" && ctx == nil {
		wrong = "no context"
	}
	if wrong != "" {
		return nil, failed(how.op, cfg.Rank, tutti.ErrInvalid, wrong, nil)
	}
	g := &Group{rank: cfg.Rank, size: cfg.Size, cfg: cfg, how: how, turn: make(chan struct{}, 1), ended: make(chan struct{})}
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	err := g.open(ctx, s)
	if err != nil {
		return nil, errors.Join(failed(how.op, cfg.Rank, kindOf(err), "it cannot join", err), g.free())
	}
	return g, nil
}

func (g *Group) open(ctx context.Context, s site) (err error) {
	// What is missing on this machine is told before the others are waited for.
	if g.lib, err = g.cfg.library(); err != nil {
		return err
	}
	if g.dev, g.ownDev, err = g.cfg.device(); err != nil {
		return err
	}
	if err := g.allocate(); err != nil {
		return err
	}
	plain := store.Config{Plain: true, Logger: g.cfg.Logger}
	if s.hosts {
		if g.server, err = store.Listen(ctx, g.cfg.Addr, plain); err != nil {
			return err
		}
	}
	if g.client, err = store.Dial(ctx, g.cfg.Addr, plain); err != nil {
		return err
	}
	_, err = g.client.CountIn(ctx)
	return err
}

// passBarrier does what ranks that wait at init_process_group's barrier want of
// this one, and does not wait there itself.
func (g *Group) passBarrier(ctx context.Context, prefixes []string) error {
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	for _, p := range prefixes {
		n, err := g.client.Add(ctx, p+barrierKey, 1)
		// A Join that is called again counts this rank twice.
		if err == nil && n >= int64(g.size) {
			err = g.client.Set(ctx, p+barrierKey+":last_worker", []byte("1"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// exchange makes the communicator's id, or is told it.
func (g *Group) exchange(ctx context.Context) (nccl.UniqueID, error) {
	if g.rank > 0 {
		value, err := firstOf(ctx, g.client, g.how.keys)
		if err != nil {
			return nccl.UniqueID{}, g.explain(err)
		}
		return g.how.decode(value)
	}
	id, err := g.lib.NewID()
	for _, k := range g.how.keys {
		if err == nil {
			err = g.client.Set(ctx, k, g.how.encode(id))
		}
	}
	return id, err
}

// firstOf waits until one of some keys is there, and returns its value.
func firstOf(ctx context.Context, s store.Store, keys []string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type got struct {
		value []byte
		err   error
	}
	all := make(chan got)
	for _, k := range keys {
		go func() {
			v, err := s.Get(ctx, k)
			all <- got{v, err}
		}()
	}
	var first *got
	for range keys { // to the last, so that no connection is left in use
		if one := <-all; first == nil {
			first = &one
			cancel()
		}
	}
	return first.value, first.err
}

// explain says why nobody has told the id, as far as the store knows.
func (g *Group) explain(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	text := fmt.Sprintf("rank 0 has not told the communicator's id (key %q)", g.how.keys[0])
	n, e := g.client.Members(ctx)
	if e != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	text += fmt.Sprintf("; %d of %d processes have come to the store", n, g.size)
	keys, _ := g.client.List(ctx) // servers of older versions do not have it
	for _, k := range keys {
		if strings.Contains(k, "0//cpu//") {
			text += `; Python ranks wait in Gloo, which Go ranks cannot join: use init_process_group(backend="nccl")`
			break
		}
	}
	return fmt.Errorf("%s: %w", text, err)
}
