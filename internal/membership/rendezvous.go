package membership

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/claim"
	"github.com/tutti-go/tutti/internal/control"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/job"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// queryTimeout bounds short requests: those of a rank that has failed to join, and the
// second try of a rank that has not reached the store in time.
const queryTimeout = 2 * time.Second

// A rendezvous is how ranks find rank 0 through a store, the launcher's or that of
// torchrun's agent.
//
// Each Join of rank 0 is an attempt, which has a number. Rank 0 writes what it offers to
// the first of jobstore.Attempt(1), Attempt(2) and so on that does not exist, and then its
// address to jobstore.Address of that number. The other ranks connect to the last attempt,
// and abandon it when a newer one appears. So Joins of rank 0 and of other ranks need not
// begin together, and each Join that fails can be called again. No rank uses an attempt in
// which it has joined before: that job is complete.
//
// A rank 0 of protocol 1 writes the address alone, and other ranks of that protocol read
// nothing else. So ranks of both protocols reach each other, and the control channel
// refuses them in words.
//
// A Comm is named after its lineage. The first attempt that succeeds has lineage 1. Rank 0
// proposes the lineage with its address. The key jobstore.Lineage assigns a lineage to one
// attempt, so that no two attempts have the same lineage.
type rendezvous struct {
	cfg      *Config
	factory  *processFactory
	client   *store.Client
	store    store.Store
	claim    *claim.Claim  // on this rank
	listener net.Listener  // rank 0's; nil on other ranks
	joining  bool          // this rank knows the address of now, and connects to it
	last     attempt       // the last attempt in which this rank has joined; zero: none
	now      attempt       // the attempt in which this rank joins
	keeping  chan struct{} // closed when claim.Keep has returned
}

// newRendezvous connects to the store, and makes this process the only one of its rank.
func newRendezvous(ctx context.Context, cfg *Config) (*rendezvous, error) {
	r := &rendezvous{cfg: cfg, factory: newProcessFactory(cfg)}
	stop := r.remind(ctx, func(_ context.Context, waited time.Duration) {
		cfg.Logger.Info("tutti: Join waits for the job's store", "address", r.factory.addr, "waited", waited.Round(time.Second))
	})
	var err error
	r.client, r.store, err = r.factory.dial(ctx)
	stop()
	if err != nil {
		return nil, err
	}
	if err = r.register(ctx); err == nil {
		r.last, err = r.read(ctx, jobstore.Joined(cfg.Rank))
	}
	if err != nil {
		if r.claim != nil {
			err = r.release(err)
		}
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rendezvous) close() {
	if r.listener != nil {
		r.listener.Close()
	}
	r.client.Close()
}

// register compares the size of the job with that of the other ranks, and claims this
// process's rank. A process that is refused reports it in the store.
func (r *rendezvous) register(ctx context.Context) error {
	refuse := func(text string) error {
		_ = r.store.Push(ctx, jobstore.Refused, []byte(claim.Name()+": "+text))
		return fmt.Errorf("%s is refused: %s", claim.Name(), text)
	}
	size := strconv.Itoa(r.cfg.Size)
	theirs, err := r.store.CompareAndSet(ctx, jobstore.Size, nil, []byte(size))
	if err != nil {
		return err
	}
	if string(theirs) != size {
		return refuse(fmt.Sprintf("it was started for a job of %s ranks, this job has %s; start all ranks with the same size", size, theirs))
	}
	r.claim, err = claim.Take(ctx, r.store, jobstore.Rank(r.cfg.Rank), claim.Options{Using: r.inUse})
	if taken := (*claim.TakenError)(nil); errors.As(err, &taken) {
		return refuse(fmt.Sprintf("rank %d is already in the job: %s", r.cfg.Rank, taken.Holder))
	}
	return err
}

// inUse reports whether the process of this rank whose claim has the token has joined a job
// whose rank 0 still listens.
func (r *rendezvous) inUse(ctx context.Context, token string) bool {
	joined, err := r.read(ctx, jobstore.Joined(r.cfg.Rank))
	if err != nil || joined.Token != token {
		return false
	}
	d := net.Dialer{Timeout: queryTimeout}
	c, err := d.DialContext(ctx, "tcp", joined.Addr)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// keep renews the claim while this process joins. The returned context ends when another
// process has taken the claim over.
func (r *rendezvous) keep(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.keeping = make(chan struct{})
	go func() {
		defer close(r.keeping)
		if err := r.claim.Keep(ctx); err != nil {
			cancel(err)
		}
	}()
	return ctx, cancel
}

// join joins the job: rank 0 offers an attempt, the other ranks follow. Another goroutine
// keeps the claim meanwhile; if the claim is lost, join fails with a *claim.LostError. A
// job that was formed is abandoned if join fails.
func (r *rendezvous) join(ctx context.Context) (*job.Job, error) {
	kept, cancel := r.keep(ctx)
	var j *job.Job
	var err error
	if r.cfg.Rank == 0 {
		j, err = r.lead(kept)
	} else {
		j, err = r.find(kept)
	}
	if err == nil {
		err = r.record(kept)
	}
	if lost := (*claim.LostError)(nil); err != nil && errors.As(context.Cause(kept), &lost) {
		err = lost
	}
	cancel(nil)
	<-r.keeping
	if err == nil {
		err = r.claim.Confirm(ctx)
	}
	if err != nil && j != nil {
		err = errors.Join(err, j.Abandon(err))
	}
	if err != nil {
		return nil, err
	}
	return j, nil
}

// record assigns the lineage to this attempt, and records in the store that this rank has
// joined.
func (r *rendezvous) record(ctx context.Context) error {
	mine := strconv.FormatInt(r.now.Number, 10)
	theirs, err := r.store.CompareAndSet(ctx, jobstore.Lineage(r.now.Lineage), nil, []byte(mine))
	if err != nil {
		return err
	}
	if string(theirs) != mine {
		return fmt.Errorf("attempt %s of rank 0 was joined at the same time as attempt %s; call Join again", theirs, mine)
	}
	r.now.Token = r.claim.Token()
	text, err := json.Marshal(r.now)
	if err != nil {
		return err
	}
	return r.store.Set(ctx, jobstore.Joined(r.cfg.Rank), text)
}

// release frees this process's rank after a failed Join, so that another process can take
// it. If the Join timed out on this rank or on rank 0, the returned error names the missing
// ranks. A rank that has timed out is not missing.
func (r *rendezvous) release(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	if !slices.ContainsFunc([]error{context.DeadlineExceeded, context.Canceled, io.EOF, syscall.ECONNRESET},
		func(e error) bool { return errors.Is(err, e) }) {
		r.claim.Release(ctx)
		return err
	}
	r.claim.Leave(ctx)
	if r.cfg.Rank == 0 && r.joining || errors.As(err, new(*control.MissingError)) { // the error names the missing ranks already
		return err
	}
	missing, e := r.missing(ctx)
	if e != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%d of %d ranks joined; %s missing: %w", r.cfg.Size-len(missing), r.cfg.Size, engine.Ranks(missing), err)
}

// remind calls f from time to time, until stop is called, while this rank waits.
func (r *rendezvous) remind(ctx context.Context, f func(ctx context.Context, waited time.Duration)) (stop func()) {
	return control.Remind(ctx, cmp.Or(r.cfg.remind, control.RemindInterval), f)
}

// logMissing logs which ranks no process has claimed. Only the lowest of the other ranks does so. While
// rank 0 waits for connections, it logs the missing ranks itself.
func (r *rendezvous) logMissing(ctx context.Context, waited time.Duration) {
	missing, err := r.missing(ctx)
	if err != nil || len(missing) == 0 {
		return
	}
	for rank := range r.cfg.Rank {
		if !slices.Contains(missing, rank) {
			return
		}
	}
	control.LogMissing(r.cfg.Logger, missing, r.cfg.Size, waited)
}

// missing returns the ranks that no process has claimed. The claim of a process that was
// refused is empty.
func (r *rendezvous) missing(ctx context.Context) ([]int, error) {
	keys, err := r.store.List(ctx)
	if err != nil {
		return nil, err
	}
	var ranks []int
	var claims []string
	for _, k := range keys {
		if rank, ok := jobstore.ParseRank(k); ok && rank >= 0 && rank < r.cfg.Size {
			ranks, claims = append(ranks, rank), append(claims, k)
		}
	}
	var values [][]byte
	if len(claims) > 0 {
		if values, err = r.store.MultiGet(ctx, claims...); err != nil {
			return nil, err
		}
	}
	claimed := make([]bool, r.cfg.Size)
	for i, rank := range ranks {
		claimed[rank] = len(values[i]) > 0
	}
	return slices.DeleteFunc(count(r.cfg.Size), func(rank int) bool { return claimed[rank] }), nil
}
