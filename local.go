package tutti

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tutti-go/tutti/internal/membership"
)

// Local returns the Comms of n ranks in this process, for n goroutines. The caller closes each of them. If a
// device cannot be attached, no Comm stays open.
func Local(n int, cfg Config) ([]*Comm, error) {
	if n < 1 || n > membership.MaxRanks {
		return nil, &Error{Op: "Local", Cause: &cause{kind: ErrInvalid, reason: fmt.Sprintf("%d ranks; the number must be 1 to %d", n, membership.MaxRanks)}}
	}
	if err := cfg.fill(); err != nil {
		return nil, &Error{Op: "Local", Cause: &cause{kind: ErrInvalid, reason: err.Error()}}
	}
	comms := make([]*Comm, n)
	for r, m := range membership.Local(n, cfg.membership()) {
		if err := m.AttachDevice(nil); err != nil {
			for _, c := range comms[:r] {
				_ = c.Close() // no operation was started
			}
			return nil, &Error{Op: "Local", Rank: r, Cause: err}
		}
		comms[r] = newComm(m, cfg.reporter(m))
	}
	return comms, nil
}

var errExited = errors.New("the function exited its goroutine without returning")

// RunLocal runs fn on n goroutines, each with its own rank's Comm. It returns the
// first error when all goroutines have returned, of fn or of the Close of its Comm. The
// first error also ends the other goroutines: it poisons their Comms and cancels their
// context. RunLocal closes the Comms.
func RunLocal(ctx context.Context, n int, cfg Config, fn func(ctx context.Context, c *Comm) error) error {
	switch {
	case ctx == nil:
		return &Error{Op: "RunLocal", Cause: &cause{kind: ErrInvalid, reason: errNilContext.Error()}}
	case fn == nil:
		return &Error{Op: "RunLocal", Cause: &cause{kind: ErrInvalid, reason: "the function is nil"}}
	}
	comms, err := Local(n, cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		ranks sync.WaitGroup
		once  sync.Once
		first error
	)
	for _, c := range comms {
		ranks.Go(func() {
			err := errExited
			defer func() {
				if err == nil {
					err = c.Close()
				}
				if err != nil {
					once.Do(func() {
						first = fmt.Errorf("rank %d: %w", c.rank, err)
						c.Abort(err)
						cancel(first)
					})
				}
				_ = c.Close()
			}()
			err = fn(ctx, c)
		})
	}
	ranks.Wait()
	return first
}
