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

// A Group is this process's membership in a PyTorch job. Its methods may be
// called from many goroutines; calls take turns, and that their order is that of
// the other ranks is the caller's duty.
//
// A method returns when the GPU is done. If its context ends before that, or NCCL
// fails, this rank leaves the communicator: the error is returned by all later
// calls, and what memory holds is undefined. The other ranks notice by NCCL's own
// means, if at all before their timeout.
type Group struct {
	rank, size int
	cfg        Config
	how        custom

	lib    *nccl.Library
	dev    *cuda.Device
	ownDev bool
	stream *cuda.Stream
	one    *cuda.Slice[float32] // for barriers
	server *store.Server        // nil: another process hosts the store
	client *store.Client

	turn chan struct{} // holds something while a call is under way
	comm *nccl.Comm    // nil until the first call; whoever has the turn may use it

	mu     sync.Mutex
	err    error // why the group is of no use any more
	closed bool
	ended  chan struct{} // closed by Close
}

// patience is how long NCCL may take to end something.
const patience = 10 * time.Second

// allocate makes what the group needs on the device.
func (g *Group) allocate() (err error) {
	if g.stream, err = g.dev.NewStream(); err != nil {
		return err
	}
	if g.one, err = cuda.Alloc[float32](g.dev, 1); err != nil {
		return err
	}
	return g.one.Fill(0)
}

// Rank returns this rank's number.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.size }

// Device returns the group's device.
func (g *Group) Device() *cuda.Device { return g.dev }

// Store returns the job's store. It is closed with the Group.
func (g *Group) Store() store.Store { return g.client }

// Err returns why the group is of no use any more, or nil.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Connect makes the communicator, if no call has done so yet. It waits until all
// ranks are in their first collective, or in an init_process_group that is given
// a device_id.
func (g *Group) Connect(ctx context.Context) error {
	return g.do(ctx, "Connect", func(*nccl.Comm, *cuda.Stream) error { return nil }, false)
}

// AllReduce combines the elements of all ranks, in place.
func (g *Group) AllReduce(ctx context.Context, b nccl.Buffer, op nccl.Op) error {
	return g.do(ctx, "AllReduce", func(c *nccl.Comm, s *cuda.Stream) error { return c.AllReduce(b, b, op, s) }, true)
}

// Broadcast copies the root's elements to all ranks.
func (g *Group) Broadcast(ctx context.Context, b nccl.Buffer, root int) error {
	return g.do(ctx, "Broadcast", func(c *nccl.Comm, s *cuda.Stream) error { return c.Broadcast(b, b, root, s) }, true)
}

// AllGather copies every rank's src into every rank's dst, in the ranks' order.
func (g *Group) AllGather(ctx context.Context, dst, src nccl.Buffer) error {
	return g.do(ctx, "AllGather", func(c *nccl.Comm, s *cuda.Stream) error { return c.AllGather(src, dst, s) }, true)
}

// Barrier waits until all ranks have called it. In PyTorch, and so here, it is an
// AllReduce of one number.
func (g *Group) Barrier(ctx context.Context) error { return g.do(ctx, "Barrier", g.sync, true) }

func (g *Group) sync(c *nccl.Comm, s *cuda.Stream) error {
	b := nccl.Of(g.one)
	return c.AllReduce(b, b, nccl.Sum, s)
}

// Do calls f, which puts work for the communicator into the stream, and waits
// until that is done: several operations without a wait between them, or those
// that a Group has no method for. After an error of f the group is of no use.
func (g *Group) Do(ctx context.Context, f func(c *nccl.Comm, s *cuda.Stream) error) error {
	return g.do(ctx, "Do", f, false)
}

// do is one call. A single operation that is refused for its arguments has not
// begun, and leaves the group as it was.
func (g *Group) do(ctx context.Context, op string, f func(*nccl.Comm, *cuda.Stream) error, single bool) error {
	if ctx == nil {
		return failed(op, g.rank, tutti.ErrInvalid, "no context", nil)
	}
	ctx, cancel := g.bounded(ctx)
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
		return g.fail(op, "the communicator cannot be made", g.advise(err))
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
		return failed(op, g.rank, tutti.ErrInvalid, "nothing has happened", err)
	}
	err = g.fail(op, "it has not come to its end", err)
	g.quiet()
	return err
}

// connect makes the communicator, if there is none.
func (g *Group) connect(ctx context.Context) error {
	if g.comm != nil {
		return nil
	}
	id, err := g.exchange(ctx)
	if err != nil {
		return err
	}
	// Calls on a communicator that blocks could not be given up.
	g.comm, err = g.lib.Init(ctx, g.dev, id, g.rank, g.size, nccl.Config{NonBlocking: true})
	if err != nil {
		return err
	}
	if !g.how.warm {
		return nil
	}
	defer context.AfterFunc(ctx, g.abort)()
	if err := g.sync(g.comm, g.stream); err != nil {
		return err
	}
	return g.await(ctx)
}

// advise says what to do about ranks that have different versions of NCCL. NCCL's
// own words name the ranks and the versions.
func (g *Group) advise(err error) error {
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

// await waits until the stream is done, and looks now and then at what NCCL has
// to say.
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

// bounded is a context with the group's timeout.
func (g *Group) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if g.cfg.Timeout < 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, g.cfg.Timeout)
}

// fail notes why the group is of no use any more, and returns the first cause.
func (g *Group) fail(op, text string, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = failed(op, g.rank, kindOf(err), text, err)
	}
	return g.err
}

// abort ends what runs on the communicator. NCCL may hang in it; then it is left
// to itself.
func (g *Group) abort() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := g.comm.Abort(ctx); err != nil {
		g.cfg.Logger.Warn("tutti: a communicator could not be aborted cleanly", "device", g.dev.Ordinal(), "error", err)
	}
}

// quiet aborts, and waits until the device no longer uses the caller's memory.
func (g *Group) quiet() {
	if g.comm != nil {
		g.abort()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = g.stream.Wait(ctx) // its error is that of the operation, which has been told
}

// Close ends the membership: a call that is under way first comes to its end.
// NCCL waits for the other ranks, to whom it may still have something to send,
// but not for long. If this process hosts the job's store, the store ends. Close
// may be called more than once.
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

// end ends the communicator, in good order if nothing has gone wrong.
func (g *Group) end(cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if cause != nil {
		return g.comm.Abort(ctx)
	}
	closed := make(chan error, 1)
	go func() { closed <- g.comm.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(patience / 2):
		return g.comm.Abort(ctx)
	}
}

// free gives back what open made.
func (g *Group) free() error {
	var errs []error
	if g.client != nil {
		errs = append(errs, g.client.Close())
	}
	if g.server != nil {
		errs = append(errs, g.server.Close())
	}
	if g.one != nil {
		errs = append(errs, g.one.Free())
	}
	if g.stream != nil {
		errs = append(errs, g.stream.Close())
	}
	if g.ownDev && g.dev != nil {
		errs = append(errs, g.dev.Close())
	}
	return errors.Join(errs...)
}

// failed is an error of this package: one of tutti's kinds, and what happened.
func failed(op string, rank int, kind error, text string, err error) error {
	cause := fmt.Errorf("%w: %s", kind, text)
	if err != nil {
		cause = fmt.Errorf("%w: %s: %w", kind, text, err)
	}
	return &tutti.Error{Op: op, Rank: rank, Cause: cause}
}

// kindOf is which of tutti's kinds an error is.
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
