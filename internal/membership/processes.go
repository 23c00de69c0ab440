package membership

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/job"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// A processFactory makes the engines of processes. Their job has a store: the launcher's,
// or that of torchrun's agent.
type processFactory struct {
	cfg    *Config
	addr   string // of the store, host:port
	near   string // see launchenv.Place.Near
	plain  bool   // the store is PyTorch's, without authentication
	prefix string // of the ranks' part of the store
}

func newProcessFactory(cfg *Config) *processFactory {
	p := cfg.place
	return &processFactory{cfg: cfg, addr: p.Store, near: p.Near(), plain: p.Plain, prefix: jobstore.Ranks(p.Attempt)}
}

// hasStore reports whether the launcher describes a store.
func (c *Config) hasStore() bool { return c.place != nil && c.place.Store != "" }

// dial connects to the store. It tries again until the store answers or ctx ends.
func (f *processFactory) dial(ctx context.Context) (*store.Client, store.Store, error) {
	cfg := store.Config{Secret: []byte(f.cfg.Secret), Cert: f.cfg.Cert, Key: f.cfg.Key, HostTimeout: f.cfg.HostTimeout, Logger: f.cfg.Logger}
	if f.plain {
		cfg = store.Config{Plain: true, HostTimeout: f.cfg.HostTimeout, Logger: f.cfg.Logger}
	}
	client, err := store.Dial(ctx, f.addr, cfg)
	if err != nil {
		return nil, nil, err
	}
	return client, store.Prefix(client, f.prefix), nil
}

func (f *processFactory) dialTimeout(ctx context.Context, timeout time.Duration) (*store.Client, store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f.dial(ctx)
}

// open connects to the store within Config.ShrinkTimeout: the store has run since the job began.
// It tries a second time after a failure. A process that was suspended finds its timer
// expired or its connection cut, although it has hardly tried.
func (f *processFactory) open(ctx context.Context) (store.Store, func() error, error) {
	began := time.Now()
	client, s, err := f.dialTimeout(ctx, f.cfg.ShrinkTimeout)
	if err != nil && ctx.Err() == nil {
		client, s, err = f.dialTimeout(ctx, max(queryTimeout, f.cfg.ShrinkTimeout-time.Since(began)))
	}
	if err != nil {
		return nil, nil, err
	}
	return s, client.Close, nil
}

// form joins a job that consists of the ranks of one generation. The generation's name is
// part of the job's secret, so that no process of another generation can connect.
func (f *processFactory) form(ctx context.Context, s store.Store, generation string, rank, size int) (engine.Engine, engine.Roster, error) {
	if size == 1 {
		return shm.NewLocal(1, shm.Options{Timeout: f.cfg.Timeout})[0], nil, nil
	}
	// This text must not change: a process of another version must know the secret, so that it
	// is refused because of its version.
	secret := hmac.New(sha256.New, []byte(f.cfg.Secret))
	secret.Write([]byte("tutti epoch " + generation))
	var l net.Listener
	addr, err := exchangeAddr(ctx, s, generation, rank, func() (addr string, err error) {
		addr, l, err = listenNear(ctx, f.near)
		return addr, err
	})
	var j *job.Job
	if err == nil {
		j, err = f.cfg.enter(ctx, rank, size, addr, l, secret.Sum(nil))
	}
	if err != nil {
		if l != nil {
			l.Close()
		}
		return nil, nil, err
	}
	return j.World(), j, nil
}

// exchangeAddr returns the address at which rank 0 of a generation listens. Rank 0 calls
// listen and writes the address into the store; the other ranks read it.
func exchangeAddr(ctx context.Context, s store.Store, generation string, rank int, listen func() (string, error)) (string, error) {
	key := jobstore.GenerationAddress(generation)
	if rank != 0 {
		addr, err := s.Get(ctx, key)
		if err != nil && ctx.Err() != nil {
			err = &engine.AbsentError{Ranks: []int{0}, Err: fmt.Errorf("rank 0 of the new Comm has not joined: %w", ctx.Err())}
		}
		return string(addr), err
	}
	addr, err := listen()
	if err != nil {
		return "", err
	}
	return addr, s.Set(ctx, key, []byte(addr))
}

// enter joins the job whose rank 0 listens at addr. l is rank 0's listener, or nil.
func (c *Config) enter(ctx context.Context, rank, size int, addr string, l net.Listener, secret []byte) (*job.Job, error) {
	encrypt, err := c.tls()
	if err != nil {
		return nil, err
	}
	return job.Enter(ctx, job.Config{
		Rank: rank, Size: size, Addr: addr, Listener: l, Secret: secret, Timeout: c.Timeout,
		Interface: c.Interface, TLS: encrypt, NoEncryption: c.NoEncryption && c.Secret != "", Network: c.NoSharedMemory, Host: c.Host, Reproducible: c.Reproducible,
		HostTimeout: c.HostTimeout, Verify: c.Verify, ABI: c.ABI, Options: c.Alike, Logger: c.Logger,
	})
}
