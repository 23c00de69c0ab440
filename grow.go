package tutti

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/store"
)

// Grow lets n new processes in and returns a new Comm: its first ranks are those
// of this one, in their order, and then come the new ones, in the order in which
// they have called Join with Config.Late. All ranks call Grow with the same n;
// it waits until so many have come. The old Comm is closed.
//
// If n is zero it waits for nobody: it lets in whoever has come, and if that is
// nobody it returns this Comm itself, which goes on. That costs a Broadcast, and
// a look into the store, of the order of a millisecond: a loop asks now and then.
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
	case n < 0 || n > maxRanks-c.size:
		return nil, c.refuse(op, &cause{kind: ErrInvalid, reason: fmt.Sprintf("%d new ranks", n)})
	case !between || c.home.line != worldLine:
		return nil, c.refuse(op, &cause{kind: ErrUnsupported, reason: "only the Comm of all processes of a job can grow"})
	}
	ctx, cancel := c.home.bound(ctx)
	defer cancel()
	wait := n > 0
	if !wait {
		var err error
		if n, err = c.waiting(ctx, op); err != nil || n == 0 {
			return c.unless(err)
		}
	}
	// When all are here, all have completed what was before.
	seq, err := c.do(ctx, &engine.Call{Verb: engine.Dup, Method: op, Name: fmt.Sprint(op, " by ", n)})
	if err != nil {
		return nil, err
	}
	c.stopAccepting()
	if err := c.settle(ctx); err != nil {
		return nil, c.failAll(ctx, op, seq, err)
	}
	s, closeStore, err := c.home.site.open(ctx)
	if err == nil {
		defer func() { _ = closeStore() }()
		var d *agree.Decision
		if d, err = c.decideGrowth(ctx, s, seq-1, n, wait); err == nil {
			c.retire(true)
			return c.follow(ctx, op, s, d)
		}
	}
	return nil, c.failAll(ctx, op, seq, err)
}

// unless is this Comm, or the error.
func (c *Comm) unless(err error) (*Comm, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// failAll poisons the Comm: the others wait for what this rank would have
// counted, decided or made.
func (c *Comm) failAll(ctx context.Context, op string, seq uint64, err error) error {
	c.e.Fail(&engine.Failure{Kind: undecided(ctx, err).kind, Op: op, Seq: seq, Rank: c.rank, Facts: engine.Facts{Text: err.Error()}, Err: err})
	return c.failure(c.e.Failure())
}

// waiting has rank 0 count who waits to be let in, and tell the others.
func (c *Comm) waiting(ctx context.Context, op string) (int, error) {
	n := []int64{0}
	if c.rank == 0 {
		var err error
		if n[0], err = c.countLate(ctx); err != nil {
			return 0, c.failAll(ctx, op, 0, err)
		}
	}
	call := broadcast(Of(n), 0)
	call.Method = op
	_, err := c.do(ctx, &call)
	return int(n[0]), err
}

func (c *Comm) countLate(ctx context.Context) (n int64, err error) {
	s, closeStore, err := c.home.site.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	for t := c.home.tickets + 1; ; t++ {
		switch who, err := ticket(ctx, s, t, false); {
		case err != nil || who == "":
			return n, err
		case who != launchenv.Withdrawn:
			n++
		}
	}
}

// ticket returns who holds a ticket; "" if nobody has it yet, and that is not
// waited for.
func ticket(ctx context.Context, s store.Store, number int64, wait bool) (who string, err error) {
	key := launchenv.LateKey(number)
	if !wait {
		if taken, err := s.Check(ctx, key); err != nil || !taken {
			return "", err
		}
	}
	text, err := s.Get(ctx, key)
	return string(text), err
}

// decideGrowth has rank 0 decide who comes in, up to n or, if it is to wait,
// that many; the others learn of it.
func (c *Comm) decideGrowth(ctx context.Context, s store.Store, done uint64, n int, wait bool) (*agree.Decision, error) {
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
		who, err := ticket(ctx, s, d.Tickets+1, wait)
		if err != nil {
			return nil, fmt.Errorf("%d of %d new processes have come: %w", len(d.Late), n, err)
		}
		if who == "" {
			break // somebody has withdrawn meanwhile
		}
		d.Tickets++
		if who != launchenv.Withdrawn {
			d.Late = append(d.Late, d.Tickets)
		}
	}
	return agree.Propose(ctx, agree.On(s), c.home.name(), d)
}

// takeTicket takes the first ticket that nobody has: by that, whoever dies here
// either has one or leaves no trace.
func takeTicket(ctx context.Context, s store.Store, p *launchenv.Place) (number int64, me string, err error) {
	name, _ := os.Hostname() // for people
	me = launchenv.Holder(p.Name, fmt.Sprintf("process %d on %s", os.Getpid(), name), rand.Text())
	for number = 1; ; number++ {
		who, err := s.CompareAndSet(ctx, launchenv.LateKey(number), nil, []byte(me))
		if err != nil || string(who) == me {
			return number, me, err
		}
	}
}

// withdraw gives a ticket back, if this process has it: rank 0 need not wait for
// this one. If it has been let in meanwhile, the others find out.
func withdraw(s store.Store, number int64, me string) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	_, _ = s.CompareAndSet(ctx, launchenv.LateKey(number), []byte(me), []byte(launchenv.Withdrawn))
}

// joinLate joins a job that is running, when it grows.
func joinLate(ctx context.Context, cfg *Config, p *launchenv.Place) (*Comm, error) {
	from := newProcesses(cfg, p)
	client, s, err := from.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	number, me, err := takeTicket(ctx, s, p)
	if err != nil {
		withdraw(s, number, me) // the answer may have come too late
		return nil, err
	}
	h := &home{cfg: *cfg, site: from, teller: newTeller(cfg, p), line: worldLine}
	for {
		d, err := agree.Learn(ctx, agree.On(s), h.name())
		if err != nil {
			withdraw(s, number, me)
			return nil, fmt.Errorf("the ranks of the job have not called Grow: %w", err)
		}
		if rank := d.Newcomer(number); rank >= 0 {
			c, err := h.follow(ctx, s, d, rank, nil)
			if err == nil && p.Name != "" {
				err = s.Set(ctx, launchenv.LetInKey(p.Name), fmt.Appendf(nil, "rank %d of %d", c.rank, c.size))
			}
			if err != nil {
				return nil, errors.Join(err, c.Close())
			}
			return c, nil
		}
		if d.Tickets >= number {
			return nil, &cause{kind: ErrExcluded, reason: "the job has grown without this process"}
		}
		h = h.next(d.Size(), d.Tickets)
	}
}
