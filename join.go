package tutti

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/job"
)

// Join joins this process to the others of its job, as the rank that cfg says,
// and returns when all have joined: its Comm with all of them. When ctx ends
// before that, the error says, on rank 0, who is missing.
//
// Ranks of one host use shared memory, others the network.
func Join(ctx context.Context, cfg Config) (*Comm, error) {
	cfg.fill()
	fail := func(kind error, reason string, own error) (*Comm, error) {
		return nil, &Error{Op: "Join", Rank: cfg.Rank, Cause: &cause{kind: kind, reason: reason, own: own}}
	}
	if ctx == nil {
		return fail(ErrInvalid, errNilContext.Error(), nil)
	}
	if wrong := cfg.validate(); wrong != "" {
		return fail(ErrInvalid, wrong, nil)
	}
	if cfg.Size == 1 {
		return newComm(shm.NewLocal(1, shm.Options{Timeout: cfg.Timeout})[0]), nil
	}
	encrypt, err := cfg.tls()
	if err != nil {
		return fail(ErrInvalid, err.Error(), err)
	}
	if cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.Timeout)
		defer cancel()
	}
	e, err := job.Join(ctx, job.Config{
		Rank: cfg.Rank, Size: cfg.Size, Addr: cfg.Addr, Secret: []byte(cfg.Secret), Timeout: cfg.Timeout,
		Interface: cfg.Interface, TLS: encrypt, Network: cfg.NoSharedMemory, Reproducible: cfg.Reproducible,
		Logger: cfg.Logger,
	})
	switch {
	case err == nil:
		return newComm(e), nil
	case ctx.Err() == context.DeadlineExceeded:
		return fail(ErrTimeout, err.Error(), err)
	}
	return fail(ErrAborted, err.Error(), err)
}
