package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tutti-go/tutti/internal/control"
	"github.com/tutti-go/tutti/internal/job"
	"github.com/tutti-go/tutti/internal/jobstore"
)

// takenPause is how long a rank waits before it connects again to a rank 0 that still has
// a connection to an earlier process of the rank. Rank 0 itself waits a while before it
// refuses.
const takenPause = 100 * time.Millisecond

// An attempt is what rank 0 offers in one call of Join.
type attempt struct {
	Number  int64  `json:"attempt"` // counted from 1; zero: there is none
	Lineage int64  `json:"line"`    // counted from 1
	Addr    string `json:"addr"`    // where rank 0 listens, host:port
	Token   string `json:"token"`   // of the claim of the process that wrote it
}

// errNewer ends an attempt when rank 0 has begun another one.
var errNewer = errors.New("rank 0 has begun another attempt")

// read returns the attempt that a key holds; zero if the key does not exist.
func (r *rendezvous) read(ctx context.Context, key string) (a attempt, err error) {
	exists, err := r.store.Check(ctx, key)
	if err != nil || !exists {
		return a, err
	}
	text, err := r.store.Get(ctx, key)
	if err != nil || len(text) == 0 { // a process of protocol 1 writes no value
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil || a.Number < 1 || a.Lineage < 1 {
		return a, invalidAttempt(text)
	}
	return a, nil
}

func invalidAttempt(text []byte) error {
	return fmt.Errorf("the store's value is not an attempt to join: %.40q; use a store that no other program writes to", text)
}

// await waits until rank 0 listens in an attempt.
func (r *rendezvous) await(ctx context.Context, number int64) (attempt, error) {
	addr, err := r.store.Get(ctx, jobstore.Address(number))
	if err != nil {
		return attempt{}, err
	}
	a, err := r.read(ctx, jobstore.Attempt(number))
	if a.Number == 0 {
		a = attempt{Number: number, Lineage: number, Addr: string(addr)} // rank 0 is of protocol 1
	}
	return a, err
}

// lead joins as rank 0: it offers the first attempt that does not exist.
func (r *rendezvous) lead(ctx context.Context) (*job.Job, error) {
	r.now = attempt{Number: r.last.Number + 1, Lineage: r.last.Lineage + 1, Token: r.claim.Token()}
	for {
		taken, err := r.store.Check(ctx, jobstore.Lineage(r.now.Lineage))
		if err != nil {
			return nil, err
		}
		if !taken {
			break
		}
		r.now.Lineage++
	}
	var err error
	if r.now.Addr, r.listener, err = listenNear(ctx, r.factory.near); err != nil {
		return nil, err
	}
	for created := false; !created; {
		if created, err = r.create(ctx); err != nil {
			return nil, err
		}
		if !created {
			r.now.Number++
		}
	}
	r.joining = true
	return r.cfg.enter(ctx, 0, r.cfg.Size, r.now.Addr, r.listener, []byte(r.cfg.Secret))
}

// create writes r.now, the attempt that this process makes, into the store, and reports whether it
// did. If the store already has an attempt with that number, create leaves it there. In both
// cases it writes the address of the attempt that the store has: an earlier process may have exited
// between its two writes, and the other ranks wait for the address. Only the goroutine in
// join uses r.
func (r *rendezvous) create(ctx context.Context) (created bool, err error) {
	mine, err := json.Marshal(r.now)
	if err != nil {
		return false, err
	}
	key := jobstore.Attempt(r.now.Number)
	theirs, err := r.store.CompareAndSet(ctx, key, nil, mine)
	if err != nil {
		return false, err
	}
	var first attempt
	if err := json.Unmarshal(theirs, &first); err != nil {
		return false, invalidAttempt(theirs)
	}
	if _, err := r.store.CompareAndSet(ctx, jobstore.Address(r.now.Number), nil, []byte(first.Addr)); err != nil {
		return false, err
	}
	return string(theirs) == string(mine), nil
}

// find joins as another rank than 0: it follows the attempts of rank 0.
func (r *rendezvous) find(ctx context.Context) (*job.Job, error) {
	var earlier error // rank 0 was still connected to an earlier process of this rank
	for number := r.last.Number + 1; ; number++ {
		r.joining = false
		if err := r.latest(ctx, number); err != nil {
			return nil, err
		}
		number = r.now.Number
		r.joining = true
		j, err := r.follow(ctx)
		lost, taken := (*control.RootLostError)(nil), (*control.TakenError)(nil)
		switch {
		case err == nil:
			return j, nil
		case ctx.Err() != nil && earlier != nil:
			return nil, fmt.Errorf("%w; before that %w", err, earlier)
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, errNewer):
		case errors.As(err, &taken):
			// The earlier process has exited, because this process holds the rank's claim.
			// Rank 0 will notice soon.
			earlier = err
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: %w", earlier, ctx.Err())
			case <-time.After(takenPause):
			}
			number-- // the same attempt again
		case errors.As(err, &lost): // another process may become rank 0
			stop := r.remind(ctx, func(_ context.Context, waited time.Duration) {
				control.LogMissing(r.cfg.Logger, []int{0}, r.cfg.Size, waited)
			})
			e := r.store.Wait(ctx, jobstore.Address(number+1))
			stop()
			if e != nil {
				return nil, fmt.Errorf("%w, and no other process has replaced it: %w", err, e)
			}
		default:
			return nil, err
		}
	}
}

// latest waits for an attempt, and sets now to the last one that exists.
func (r *rendezvous) latest(ctx context.Context, number int64) (err error) {
	defer r.remind(ctx, r.logMissing)()
	for newer := true; newer; number++ {
		if r.now, err = r.await(ctx, number); err != nil {
			return err
		}
		if newer, err = r.store.Check(ctx, jobstore.Address(number+1)); err != nil {
			return err
		}
	}
	return nil
}

// follow connects to rank 0 in the attempt now. The error is errNewer if rank 0 begins a
// newer attempt meanwhile.
func (r *rendezvous) follow(ctx context.Context) (*job.Job, error) {
	try, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if r.store.Wait(try, jobstore.Address(r.now.Number+1)) == nil {
			cancel(errNewer)
		}
	}()
	j, err := r.cfg.enter(try, r.cfg.Rank, r.cfg.Size, r.now.Addr, nil, []byte(r.cfg.Secret))
	newer := errors.Is(context.Cause(try), errNewer)
	cancel(nil)
	<-watched
	if err != nil && newer {
		return nil, errNewer
	}
	return j, err
}
