package tutti

import (
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/store"
)

// Join joins this process to the others of its job and returns when all have
// joined: its Comm with all of them. When ctx ends before that, the error says
// who is missing, as far as this rank can know.
//
// Which rank this is, of how many, and where they meet is what cfg says. If its
// Size is zero, it is what the environment says: that of tutti run, of torchrun,
// or else of Open MPI, PMI or Slurm, which may need Config.Addr or TUTTI_ADDR
// beside it. Without any of them it is a world of one.
//
// A Join that failed may be called again, also while other ranks wait in theirs. A
// process that ended while it waited in Join may be replaced by another one of its
// rank. While it lives, that one is refused, and the error names the process that
// is there. Whether a process of another host lives may take some seconds to find
// out, and up to Config.Silence where there is no store and its host has failed.
//
// With Config.Late the process joins a job that is running, when that grows.
//
// Ranks of one host use shared memory, others the network, encrypted unless
// Config.Plain is set.
func Join(ctx context.Context, cfg Config) (*Comm, error) {
	p, wrong := cfg.place()
	cfg.fill()
	fail := func(kind error, reason string, own error) (*Comm, error) {
		return nil, &Error{Op: "Join", Rank: cfg.Rank, Cause: &cause{kind: kind, reason: reason, own: own}}
	}
	if ctx == nil {
		return fail(ErrInvalid, errNilContext.Error(), nil)
	}
	if wrong == "" {
		wrong = cfg.validate(p)
	}
	if wrong == "" {
		wrong = cfg.certify(p)
	}
	if wrong != "" {
		return fail(ErrInvalid, wrong, nil)
	}
	if cfg.Size == 1 && !cfg.Late {
		e, err := cfg.attach(shm.NewLocal(1, shm.Options{Timeout: cfg.Timeout})[0], nil)
		if err != nil {
			return nil, &Error{Op: "Join", Cause: err}
		}
		h := newLocalHome(&cfg, e.Size())
		if s := newSite(&cfg, p); s != nil {
			h.site = s
		}
		if r, ok := e.(simulated); ok {
			h.site, h.job, h.host = simulation{r}, r.Roster(), r.Host()
		}
		return newComm(e, h), nil
	}
	if cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.Timeout)
		defer cancel()
	}
	c, err := joinJob(ctx, &cfg, p)
	known := (*cause)(nil)
	switch {
	case err == nil:
		return c, nil
	case errors.As(err, &known):
		return nil, &Error{Op: "Join", Rank: cfg.Rank, Cause: err}
	case errors.Is(err, ErrMismatch):
		return fail(ErrMismatch, err.Error(), err)
	case ctx.Err() == context.DeadlineExceeded:
		return fail(ErrTimeout, err.Error()+advice(err), err)
	}
	return fail(ErrAborted, err.Error()+advice(err), err)
}

// advice is what to do about an error of the network that says only what
// happened.
func advice(err error) string {
	unknown, launcher := (*net.DNSError)(nil), (*store.Error)(nil)
	switch {
	case errors.As(err, &launcher):
		return ""
	case errors.Is(err, syscall.EADDRINUSE):
		return "; end the process that has the port, or give all ranks another address"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "; the address must be one of rank 0's host"
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &unknown):
		return "; is rank 0 running, and is that its address?"
	case errors.Is(err, context.DeadlineExceeded):
		return "; have all ranks been started?"
	}
	return ""
}
