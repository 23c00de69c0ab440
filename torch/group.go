package torch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
	"github.com/tutti-go/tutti/nccl"
	"github.com/tutti-go/tutti/store"
)

// A Group is this process's membership in a group of a PyTorch job. Its methods may be
// called from many goroutines. The calls run one after the other; the caller ensures that
// all ranks make them in the same order.
//
// A method returns when the operation on the GPU is complete. If its context ends first,
// or NCCL fails, this rank leaves the communicator: all later calls return the same error,
// and the contents of the buffers are undefined. The other ranks are not notified; they
// notice by NCCL's own means, or by their timeout.
type Group struct {
	rank, size int
	cfg        Config
	exchangeBy idExchange

	lib         *nccl.Library
	dev         *cuda.Device
	ownDev      bool // dev was opened by Join, and is closed by Close
	stream      *cuda.Stream
	barrierElem *cuda.Slice[float32] // the element that a barrier reduces
	server      *store.Server        // nil: another process serves the store
	client      *store.Client

	turn chan struct{} // capacity 1; full while a call is in progress
	comm *nccl.Comm    // nil until the first call; only the call in progress uses it

	mu     sync.Mutex
	err    error         // the reason why the group is not usable any more; guarded by mu
	closed bool          // guarded by mu
	ended  chan struct{} // closed by Close
}

// ncclTimeout bounds the wait for NCCL to end an operation or a communicator.
const ncclTimeout = 10 * time.Second

// allocate makes the stream and the memory of the group.
func (g *Group) allocate() (err error) {
	if g.stream, err = g.dev.NewStream(); err != nil {
		return err
	}
	if g.barrierElem, err = cuda.Alloc[float32](g.dev, 1); err != nil {
		return err
	}
	return g.barrierElem.Fill(0)
}

// Rank returns this process's rank.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.size }

// Device returns the group's device.
func (g *Group) Device() *cuda.Device { return g.dev }

// Store returns the job's store. Close closes it.
func (g *Group) Store() store.Store { return g.client }

// Err returns the error that made the group unusable, or nil.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Connect makes the communicator, unless a call has done so. It waits until all ranks are
// in their first collective, or in init_process_group with a device_id.
func (g *Group) Connect(ctx context.Context) error {
	return g.do(ctx, "Connect", func(*nccl.Comm, *cuda.Stream) error { return nil }, false)
}

// AllReduce reduces the elements of all ranks, in place.
func (g *Group) AllReduce(ctx context.Context, b nccl.Buffer, op nccl.Op) error {
	return g.do(ctx, "AllReduce", func(c *nccl.Comm, s *cuda.Stream) error { return c.AllReduce(b, b, op, s) }, true)
}

// Broadcast copies the root's elements to all ranks.
func (g *Group) Broadcast(ctx context.Context, b nccl.Buffer, root int) error {
	return g.do(ctx, "Broadcast", func(c *nccl.Comm, s *cuda.Stream) error { return c.Broadcast(b, b, root, s) }, true)
}

// AllGather copies every rank's src into every rank's dst, in rank order.
func (g *Group) AllGather(ctx context.Context, dst, src nccl.Buffer) error {
	return g.do(ctx, "AllGather", func(c *nccl.Comm, s *cuda.Stream) error { return c.AllGather(src, dst, s) }, true)
}

// Barrier waits until all ranks have called it. As in PyTorch, it is an AllReduce of one
// element.
func (g *Group) Barrier(ctx context.Context) error { return g.do(ctx, "Barrier", g.reduceOne, true) }

// reduceOne reduces one element over all ranks.
func (g *Group) reduceOne(c *nccl.Comm, s *cuda.Stream) error {
	b := nccl.Of(g.barrierElem)
	return c.AllReduce(b, b, nccl.Sum, s)
}

// Do calls f, which submits operations of the communicator to the stream, and waits until
// they are complete. It is for several operations with one wait, and for operations that
// Group has no method for. After an error of f the group is not usable.
func (g *Group) Do(ctx context.Context, f func(c *nccl.Comm, s *cuda.Stream) error) error {
	return g.do(ctx, "Do", f, false)
}

// do performs one call: it waits for the call in progress, connects, calls f and waits for
// the stream. If ctx ends, it aborts the communicator. If single is set, f is one
// operation; when NCCL refuses its arguments, nothing has started and the group stays
// usable.
func (g *Group) do(ctx context.Context, op string, f func(*nccl.Comm, *cuda.Stream) error, single bool) error {
	if ctx == nil {
		return failed(op, g.rank, tutti.ErrInvalid, "no context", nil)
	}
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-g.ended:
		return g.Err()
	case <-ctx.Done():
		return failed(op, g.rank, kindOf(ctx.Err()), "another call was under way", ctx.Err())
	}
	if err := g.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return failed(op, g.rank, kindOf(err), "the call has not begun", err)
	}
	if err := g.connect(ctx); err != nil {
		return g.fail(op, "the communicator cannot be made", g.adviseVersion(err))
	}
	stop := context.AfterFunc(ctx, g.abort)
	err := f(g.comm, g.stream)
	refused := single && (errors.Is(err, nccl.ErrInvalid) || errors.Is(err, cuda.ErrFreed) || errors.Is(err, cuda.ErrInvalid))
	if err == nil {
		err = g.await(ctx)
	}
	if !stop() {
		err, refused = ctx.Err(), false
	}
	switch {
	case err == nil:
		return nil
	case refused:
		return failed(op, g.rank, tutti.ErrInvalid, "the operation was not started", err)
	}
	err = g.fail(op, "the operation did not complete", err)
	g.abortAndDrain()
	return err
}

// connect makes the communicator, unless it exists. It fails if ctx ends first. The caller holds
// turn.
func (g *Group) connect(ctx context.Context) error {
	if g.comm != nil {
		return nil
	}
	id, err := g.exchange(ctx)
	if err != nil {
		return err
	}
	// Only the calls of a nonblocking communicator can be cancelled.
	g.comm, err = g.lib.Init(ctx, g.dev, id, g.rank, g.size, nccl.Config{NonBlocking: true})
	if err != nil {
		return err
	}
	if !g.exchangeBy.warm {
		return nil
	}
	defer context.AfterFunc(ctx, g.abort)()
	if err := g.reduceOne(g.comm, g.stream); err != nil {
		return err
	}
	return g.await(ctx)
}

// adviseVersion adds to an error about different versions of NCCL what to do. NCCL's text names
// the ranks and the versions.
func (g *Group) adviseVersion(err error) error {
	if err == nil || !strings.Contains(err.Error(), "Mismatched NCCL version") {
		return err
	}
	where := "site-packages/nvidia/nccl/lib of their Python"
	if wheel := ncclsys.Wheel(); wheel != "" && wheel != g.lib.Path() {
		where = "perhaps " + wheel
	}
	return fmt.Errorf("%w; this rank has loaded NCCL %v from %s: set %s to the libnccl.so.2 of the other ranks (%s)",
		err, g.lib.Version(), g.lib.Path(), ncclsys.LibraryEnv, where)
}

// await waits until the stream's work is complete, and checks for asynchronous errors of
// NCCL meanwhile.
func (g *Group) await(ctx context.Context) error {
	const glance = 20 * time.Millisecond
	for {
		brief, cancel := context.WithTimeout(ctx, glance)
		err := g.stream.Wait(brief)
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		if err := g.comm.AsyncError(); err != nil {
			return err
		}
	}
}

// withTimeout returns a context with the group's timeout.
func (g *Group) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if g.cfg.Timeout < 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, g.cfg.Timeout)
}

// fail makes the group unusable with this error, and returns the first such error.
func (g *Group) fail(op, text string, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = failed(op, g.rank, kindOf(err), text, err)
	}
	return g.err
}

// abort aborts the communicator. If NCCL hangs, abort returns after ncclTimeout, and NCCL
// continues in the background.
func (g *Group) abort() {
	ctx, cancel := context.WithTimeout(context.Background(), ncclTimeout)
	defer cancel()
	if err := g.comm.Abort(ctx); err != nil {
		g.cfg.Logger.Warn("tutti: a communicator could not be aborted cleanly", "device", g.dev.Ordinal(), "error", err)
	}
}

// abortAndDrain aborts the communicator, and waits until the device no longer uses the caller's
// memory.
func (g *Group) abortAndDrain() {
	if g.comm != nil {
		g.abort()
	}
	ctx, cancel := context.WithTimeout(context.Background(), ncclTimeout)
	defer cancel()
	_ = g.stream.Wait(ctx) // its error is the operation's, which fail has recorded
}

// Close leaves the group. It waits for a call in progress, and up to five seconds for NCCL,
// which may still have data to send to other ranks. If this process serves the job's
// store, the store ends. Further calls of Close do nothing.
func (g *Group) Close() error {
	g.mu.Lock()
	again, cause := g.closed, g.err
	g.closed = true
	if cause == nil {
		g.err = failed("Close", g.rank, tutti.ErrClosed, "this rank has closed the group", nil)
	}
	g.mu.Unlock()
	if again {
		return nil
	}
	close(g.ended)
	g.turn <- struct{}{}
	var err error
	if g.comm != nil {
		err = g.end(cause)
	}
	return errors.Join(err, g.free())
}

// end closes the communicator. After an error, or if closing takes longer than half of
// ncclTimeout, it aborts the communicator, which also ends the Close in progress.
func (g *Group) end(cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), ncclTimeout)
	defer cancel()
	if cause != nil {
		return g.comm.Abort(ctx)
	}
	closed := make(chan error, 1)
	go func() { closed <- g.comm.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(ncclTimeout / 2):
		return g.comm.Abort(ctx)
	}
}

// free closes or frees everything that Join has made, except the communicator. It is called once, by
// Close or by a Join that fails, when no other goroutine uses the Group.
func (g *Group) free() error {
	var errs []error
	if g.client != nil {
		errs = append(errs, g.client.Close())
	}
	if g.server != nil {
		errs = append(errs, g.server.Close())
	}
	if g.barrierElem != nil {
		errs = append(errs, g.barrierElem.Free())
	}
	if g.stream != nil {
		errs = append(errs, g.stream.Close())
	}
	if g.ownDev && g.dev != nil {
		errs = append(errs, g.dev.Close())
	}
	return errors.Join(errs...)
}

// failed returns an error of one of tutti's kinds, with its reason.
func failed(op string, rank int, kind error, text string, err error) error {
	cause := fmt.Errorf("%w: %s", kind, text)
	if err != nil {
		cause = fmt.Errorf("%w: %s: %w", kind, text, err)
	}
	return &tutti.Error{Op: op, Rank: rank, Cause: cause}
}

// kindOf returns the kind of error, of package tutti's kinds, that err is.
func kindOf(err error) error {
	missing := (*cuda.LibraryError)(nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return tutti.ErrTimeout
	case errors.Is(err, nccl.ErrRemote):
		return tutti.ErrRankLost
	case errors.Is(err, nccl.ErrInvalid), errors.Is(err, store.ErrInvalid):
		return tutti.ErrInvalid
	case errors.As(err, &missing):
		return tutti.ErrUnsupported
	}
	return tutti.ErrAborted
}
