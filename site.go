package tutti

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net"
	"time"

	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/job"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/store"
)

// processes is the site of a job that has a store: a launcher's, or that of
// torchrun's agent.
type processes struct {
	cfg    Config
	addr   string // the store's
	near   string // see place.Near
	plain  bool
	prefix string
}

// newSite is the site of a process whose place has a store; nil if it has none.
func newSite(cfg *Config, p *launchenv.Place) site {
	if p == nil || p.Store == "" {
		return nil
	}
	return newProcesses(cfg, p)
}

func newProcesses(cfg *Config, p *launchenv.Place) *processes {
	return &processes{cfg: *cfg, addr: p.Store, near: p.Near(), plain: p.Plain, prefix: "tutti/" + p.Epoch}
}

// dial connects to the store.
func (p *processes) dial(ctx context.Context) (*store.Client, store.Store, error) {
	how := store.Config{Secret: []byte(p.cfg.Secret), Cert: p.cfg.Cert, Key: p.cfg.Key, Silence: p.cfg.Silence, Logger: p.cfg.Logger}
	if p.plain {
		how = store.Config{Plain: true, Silence: p.cfg.Silence, Logger: p.cfg.Logger}
	}
	client, err := store.Dial(ctx, p.addr, how)
	if err != nil {
		return nil, nil, err
	}
	return client, store.Prefix(client, p.prefix), nil
}

// dialFor is dial that tries no longer than that.
func (p *processes) dialFor(ctx context.Context, most time.Duration) (*store.Client, store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return p.dial(ctx)
}

// open connects to the store, which was there when the job began: it is not
// waited for as long as then. But a process that was suspended meanwhile finds
// that its time is over, or its connection, and has hardly tried: it may once more.
func (p *processes) open(ctx context.Context) (store.Store, func() error, error) {
	began := time.Now()
	client, s, err := p.dialFor(ctx, p.cfg.Patience)
	if err != nil && ctx.Err() == nil {
		client, s, err = p.dialFor(ctx, max(askTime, p.cfg.Patience-time.Since(began)))
	}
	if err != nil {
		return nil, nil, err
	}
	return s, client.Close, nil
}

// form joins a new job, of the ranks of one epoch. The name is part of its
// secret: no process of another epoch can speak to it.
func (p *processes) form(ctx context.Context, s store.Store, name string, rank, size int) (engine.Engine, engine.Roster, error) {
	if size == 1 {
		return shm.NewLocal(1, shm.Options{Timeout: p.cfg.Timeout})[0], nil, nil
	}
	secret := hmac.New(sha256.New, []byte(p.cfg.Secret))
	secret.Write([]byte("tutti epoch " + name))
	var l net.Listener
	addr, err := findFirst(ctx, s, name, rank, func() (addr string, err error) {
		addr, l, err = listenNear(ctx, p.near)
		return addr, err
	})
	var j *job.Job
	if err == nil {
		j, err = p.cfg.enter(ctx, rank, size, addr, l, secret.Sum(nil))
	}
	if err != nil {
		if l != nil {
			l.Close()
		}
		return nil, nil, err
	}
	return j.World(), j, nil
}

// findFirst returns where rank 0 of an epoch listens: rank 0 does so and says
// where, the others ask.
func findFirst(ctx context.Context, s store.Store, name string, rank int, listen func() (string, error)) (string, error) {
	key := name + "/address"
	if rank != 0 {
		addr, err := s.Get(ctx, key)
		if err != nil && ctx.Err() != nil {
			err = &engine.AbsentError{Ranks: []int{0}, Err: fmt.Errorf("rank 0 of the new Comm has not come: %w", ctx.Err())}
		}
		return string(addr), err
	}
	addr, err := listen()
	if err != nil {
		return "", err
	}
	return addr, s.Set(ctx, key, []byte(addr))
}

// enter joins the job whose rank 0 is at an address.
func (c *Config) enter(ctx context.Context, rank, size int, addr string, l net.Listener, secret []byte) (*job.Job, error) {
	encrypt, err := c.tls()
	if err != nil {
		return nil, err
	}
	return job.Enter(ctx, job.Config{
		Rank: rank, Size: size, Addr: addr, Listener: l, Secret: secret, Timeout: c.Timeout,
		Interface: c.Interface, TLS: encrypt, Plain: c.Plain && c.Secret != "", Network: c.NoSharedMemory, Host: c.Host, Reproducible: c.Reproducible,
		Silence: c.Silence, Verify: c.Verify, ABI: c.abi(), Options: c.alike(), Logger: c.Logger,
	})
}

// abi describes what this package, and the device's, rely on in all ranks.
func (c *Config) abi() string {
	text := abi.Text("tutti", "verifyEvery", verifyEvery)
	if d, ok := c.Device.(interface{ ABI() string }); ok {
		text += d.ABI()
	}
	return text
}

// alike are the options that all ranks must have, or none. Names and values are
// for people.
func (c *Config) alike() map[string]string {
	all := make(map[string]string)
	for name, on := range map[string]bool{
		"Config.Device": c.Device != nil, "Config.HostStaging": c.Device != nil && c.HostStaging,
		"Config.Verify": c.Verify, "Config.Reproducible": c.Reproducible,
	} {
		if on {
			all[name] = "set"
		}
	}
	return all
}
