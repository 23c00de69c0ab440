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
	// defaultPrefix begins the default group's keys, unless the program has passed
	// init_process_group its own store.
	defaultPrefix = "default_pg/"
	// defaultKey is PyTorch's key of the id of the default group's first communicator.
	defaultKey = "0//cuda//0"
	// barrierKey counts the ranks that have reached the barrier in init_process_group,
	// which PyTorch has before 2.1, and with TORCH_DIST_INIT_BARRIER=1.
	barrierKey = "store_based_barrier_key:0"
	// maxRanks is the largest group for which PyTorch makes a single id, unless
	// TORCH_NCCL_RANKS_PER_ROOT says otherwise.
	maxRanks = 128
	// explainTimeout bounds the queries for the reason after a rank has failed to join.
	explainTimeout = 2 * time.Second
)

// An idExchange is how a kind of job exchanges the communicator's id through the store.
type idExchange struct {
	op     string   // the constructor's name, for errors
	keys   []string // rank 0 writes the id to each; the others read the first that exists
	encode func(nccl.UniqueID) []byte
	decode func([]byte) (nccl.UniqueID, error)
	warm   bool // the first collective after init is an AllReduce of one element
}

// Join makes this process a rank of a torch.distributed group, by default of the default
// group. It returns when it has connected to the job's store. The first call, or Connect,
// makes the communicator. The caller closes the Group.
func Join(ctx context.Context, cfg Config) (*Group, error) {
	s, wrong := cfg.fill()
	if wrong == "" && cfg.Size > maxRanks {
		return nil, failed("torch.Join", cfg.Rank, tutti.ErrUnsupported,
			fmt.Sprintf("%d ranks; PyTorch joins more than %d in a way that Go ranks do not know", cfg.Size, maxRanks), nil)
	}
	c := idExchange{op: "torch.Join", encode: func(id nccl.UniqueID) []byte { return id[:] }, decode: rawID}
	var groups []string // every prefix that the default group's keys may have
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

// rawID decodes an id that is stored as its bytes.
func rawID(value []byte) (nccl.UniqueID, error) {
	if len(value) != len(nccl.UniqueID{}) {
		return nccl.UniqueID{}, fmt.Errorf("%d bytes are not an NCCL id", len(value))
	}
	return nccl.UniqueID(value), nil
}

// join opens the library, the device and the store, and registers this process as a member.
func join(ctx context.Context, cfg Config, s storePlan, wrong string, how idExchange) (*Group, error) {
	if wrong == "" && ctx == nil {
		wrong = "no context"
	}
	if wrong != "" {
		return nil, failed(how.op, cfg.Rank, tutti.ErrInvalid, wrong, nil)
	}
	g := &Group{rank: cfg.Rank, size: cfg.Size, cfg: cfg, exchangeBy: how, turn: make(chan struct{}, 1), ended: make(chan struct{})}
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	err := g.open(ctx, s)
	if err != nil {
		return nil, errors.Join(failed(how.op, cfg.Rank, kindOf(err), "it cannot join", err), g.free())
	}
	return g, nil
}

// open opens what the group needs. After an error the caller calls free.
func (g *Group) open(ctx context.Context, s storePlan) (err error) {
	// Report what is missing on this machine before waiting for other ranks.
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

// passBarrier counts this rank in the barrier of init_process_group, and releases the
// barrier if it is the last. It does not wait there.
func (g *Group) passBarrier(ctx context.Context, prefixes []string) error {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	for _, p := range prefixes {
		n, err := g.client.Add(ctx, p+barrierKey, 1)
		// Join may be called again after a failure, so the count can exceed the size.
		if err == nil && n >= int64(g.size) {
			err = g.client.Set(ctx, p+barrierKey+":last_worker", []byte("1"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// exchange returns the communicator's id. Rank 0 makes it and stores it; the other ranks wait
// for it until ctx ends; the error then says how many processes have connected to the store.
func (g *Group) exchange(ctx context.Context) (nccl.UniqueID, error) {
	if g.rank > 0 {
		value, err := firstOf(ctx, g.client, g.exchangeBy.keys)
		if err != nil {
			return nccl.UniqueID{}, g.explain(err)
		}
		return g.exchangeBy.decode(value)
	}
	id, err := g.lib.NewID()
	for _, k := range g.exchangeBy.keys {
		if err == nil {
			err = g.client.Set(ctx, k, g.exchangeBy.encode(id))
		}
	}
	return id, err
}

// firstOf waits until one of the keys exists, and returns its value.
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
	for range keys { // all of them, so that no connection stays in use
		if one := <-all; first == nil {
			first = &one
			cancel()
		}
	}
	return first.value, first.err
}

// explain adds to an error why the id is missing, as far as the store shows it.
func (g *Group) explain(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
	defer cancel()
	text := fmt.Sprintf("rank 0 has not stored the communicator's id (key %q)", g.exchangeBy.keys[0])
	n, e := g.client.Members(ctx)
	if e != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	text += fmt.Sprintf("; %d of %d processes have come to the store", n, g.size)
	keys, _ := g.client.List(ctx) // older servers do not support it
	for _, k := range keys {
		if strings.Contains(k, "0//cpu//") {
			text += `; Python ranks wait in Gloo, which Go ranks cannot join: use init_process_group(backend="nccl")`
			break
		}
	}
	return fmt.Errorf("%s: %w", text, err)
}
