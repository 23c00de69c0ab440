package tutti

import (
	"context"
	"fmt"
	"os"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/place"
	"github.com/tutti-go/tutti/store"
)

// Grow lets n new processes in and returns a new Comm: its first ranks are those
// of this one, in their order, and then come the new ones, in the order in which
// they have called Join with Config.Late. All ranks call Grow with the same n;
// it waits until so many have come. The old Comm is closed.
//
// It is an operation as others are: when it fails, the Comm is poisoned, and
// Shrink goes on without whoever was lost. Should one of the ranks, or of the
// new processes, die while the new Comm is made, that has fewer ranks than
// asked for. Only a Comm of Join, and those that follow it, can grow.
func (c *Comm) Grow(ctx context.Context, n int) (*Comm, error) {
	const op = "Grow"
	if err := c.mayDecide(ctx, op); err != nil {
		return nil, err
	}
	_, between := c.home.site.(*processes)
	switch {
	case n < 1:
		return nil, c.refuse(op, &cause{kind: ErrInvalid, reason: fmt.Sprintf("%d new ranks", n)})
	case !between || c.home.line != worldLine:
		return nil, c.refuse(op, &cause{kind: ErrUnsupported, reason: "only the Comm of all processes of a job can grow"})
	}
	ctx, cancel := c.home.bound(ctx)
	defer cancel()
	// When all are here, all have completed what was before.
	seq, err := c.do(ctx, &engine.Call{Verb: engine.Dup, Method: op, Name: fmt.Sprint(op, " by ", n)})
	if err != nil {
		return nil, err
	}
	c.turn.Or(closed)
	if err := c.settle(ctx, op); err != nil {
		return nil, err
	}
	s, closeStore, err := c.home.site.open(ctx)
	if err == nil {
		defer func() { _ = closeStore() }()
		var d *agree.Decision
		if d, err = c.decideGrowth(ctx, s, seq-1, n); err == nil {
			c.retire(true)
			return c.follow(ctx, op, s, d)
		}
	}
	// The others wait for what this rank would have decided or made.
	c.e.Fail(&engine.Failure{Kind: undecided(ctx, err).kind, Op: op, Seq: seq, Rank: c.rank, Reason: err.Error(), Err: err})
	return nil, c.failure(c.e.Failure())
}

// decideGrowth has rank 0 decide who comes in, and the others learn of it.
func (c *Comm) decideGrowth(ctx context.Context, s store.Store, done uint64, n int) (*agree.Decision, error) {
	// Whoever decides may die, or give up.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.e.Failed():
			cancel()
		case <-ctx.Done():
		}
	}()
	if c.rank != 0 {
		return agree.Learn(ctx, agree.On(s), c.home.name())
	}
	d := &agree.Decision{Members: count(c.size), Value: done, Tickets: c.home.tickets}
	for len(d.Late) < n {
		d.Tickets++
		who, err := s.Get(ctx, lateKey(d.Tickets))
		if err != nil {
			return nil, fmt.Errorf("%d of %d new processes have come: %w", len(d.Late), n, err)
		}
		if string(who) != withdrawn {
			d.Late = append(d.Late, d.Tickets)
		}
	}
	return agree.Propose(ctx, agree.On(s), c.home.name(), d)
}

// withdrawn is in the place of a newcomer that waits no longer.
const withdrawn = "gone"

func lateKey(ticket int64) string { return fmt.Sprint("late/", ticket) }

// joinLate joins a job that is running, when it grows.
func joinLate(ctx context.Context, cfg *Config, p *place.Place) (*Comm, error) {
	from := newProcesses(cfg, p)
	client, s, err := from.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ticket, err := s.Add(ctx, "late", 1)
	if err != nil {
		return nil, err
	}
	name, _ := os.Hostname() // for people
	me := fmt.Sprintf("process %d on %s", os.Getpid(), name)
	if err := s.Set(ctx, lateKey(ticket), []byte(me)); err != nil {
		return nil, err
	}
	h := &home{cfg: *cfg, site: from, line: worldLine}
	for {
		d, err := agree.Learn(ctx, agree.On(s), h.name())
		if err != nil {
			// Rank 0 need not wait for this one; if it has been let in meanwhile,
			// the others find out.
			asking, cancel := context.WithTimeout(context.Background(), askTime)
			defer cancel()
			_, _ = s.CompareAndSet(asking, lateKey(ticket), []byte(me), []byte(withdrawn))
			return nil, fmt.Errorf("the ranks of the job have not called Grow: %w", err)
		}
		if rank := d.Newcomer(ticket); rank >= 0 {
			return h.follow(ctx, s, d, rank, nil)
		}
		if d.Tickets >= ticket {
			return nil, &cause{kind: ErrExcluded, reason: "the job has grown without this process"}
		}
		h = h.next(d.Size(), d.Tickets)
	}
}
