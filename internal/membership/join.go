package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/job"
	"github.com/tutti-go/tutti/internal/jobstore"
)

// joinTimeout bounds Join if its context has no deadline.
const joinTimeout = 5 * time.Minute

// Join joins this process to the others of its job, and returns its membership in the
// group of all ranks once all have joined. cfg has passed Config.Locate and
// validation. The caller does not change it any more. A process with Config.Late may wait
// for Grow as long as ctx allows.
func Join(ctx context.Context, cfg *Config) (*Membership, error) {
	if cfg.Size == 1 && !cfg.Late {
		return joinAlone(ctx, cfg)
	}
	ctx, cancel := boundJoin(ctx, cfg)
	defer cancel()
	join := joinAll
	if cfg.Late {
		join = joinLate
	}
	m, err := join(ctx, cfg)
	if err != nil {
		return nil, joinError(ctx, err)
	}
	return m, nil
}

// boundJoin returns ctx, with joinTimeout if it needs a deadline.
func boundJoin(ctx context.Context, cfg *Config) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded || cfg.Late {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, joinTimeout)
}

// joinAlone returns the membership of a job of one rank. A simulated process has the
// simulator's engine as its device; the membership is that in a larger group.
func joinAlone(ctx context.Context, cfg *Config) (*Membership, error) {
	m := &Membership{
		cfg: cfg, engine: shm.NewLocal(1, shm.Options{Timeout: cfg.Timeout})[0],
		factory: newLocalFactory(cfg), lineage: jobstore.World,
	}
	if cfg.hasStore() {
		m.factory = newProcessFactory(cfg)
	}
	if err := m.AttachDevice(nil); err != nil {
		return nil, err
	}
	if e, ok := m.engine.(simulated); ok {
		return m.joinSimulated(ctx, e)
	}
	m.ids = count(m.engine.Size())
	return m, nil
}

// joinAll joins a job of several ranks, through the store if there is one.
func joinAll(ctx context.Context, cfg *Config) (*Membership, error) {
	m := newMembership(cfg)
	var j *job.Job
	var err error
	if m.factory == nil {
		j, err = cfg.enter(ctx, cfg.Rank, cfg.Size, cfg.Addr, nil, []byte(cfg.Secret))
	} else {
		j, err = m.rendezvous(ctx)
	}
	if err != nil {
		return nil, err
	}
	m.ids, m.engine, m.roster = count(cfg.Size), j.World(), j
	if err := m.AttachDevice(nil); err != nil {
		return nil, err
	}
	return m, nil
}

// newMembership returns the membership of a process in the world. It has no engine yet.
func newMembership(cfg *Config) *Membership {
	m := &Membership{cfg: cfg, lineage: jobstore.World, late: cfg.Late}
	if cfg.hasStore() {
		m.factory, m.process = newProcessFactory(cfg), cfg.place.Name
	}
	return m
}

// rendezvous joins the job through the store, and sets the lineage. If it fails, it
// frees the rank in the store and closes all connections.
func (m *Membership) rendezvous(ctx context.Context) (*job.Job, error) {
	r, err := newRendezvous(ctx, m.cfg)
	if err != nil {
		return nil, err
	}
	j, err := r.join(ctx)
	if err != nil {
		err = r.release(err)
		r.close()
		return nil, err
	}
	defer r.client.Close() // the job owns the listener
	if r.now.Lineage > 1 {
		m.lineage = fmt.Sprint(jobstore.World, ".", r.now.Lineage)
	}
	return j, nil
}
