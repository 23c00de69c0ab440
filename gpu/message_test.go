package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// TestMessages sends half of each rank's device memory to the next rank, and then back to its owner in one
// Batch with an AllReduce of host memory and with messages of host memory that have the same tag.
func TestMessages(t *testing.T) {
	for n := 1; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ok(t, run(t, n, tutti.Config{}, func(ctx context.Context, r *rank) error {
				next, previous := (r.Rank()+1)%n, (r.Rank()+n-1)%n
				x, all := gpu.Of(r.x), make([]float32, 100)
				half, rest := x.Slice(0, 50), x.Slice(50, 100)
				if err := r.SendRecv(ctx, next, half, previous, rest, 3); err != nil {
					return err
				}
				host, got := []float32{float32(r.Rank())}, make([]float32, 1)
				w, err := r.Batch().AllReduce(tutti.Of(make([]int32, 9)), tutti.Sum).
					Send(previous, rest, 3).Recv(next, half, 3).
					Send(next, tutti.Of(host), 3).Recv(previous, tutti.Of(got), 3).Start(ctx)
				if err = first(err, w.Wait(ctx)); err != nil {
					return err
				}
				if got[0] != float32(previous) {
					return fmt.Errorf("host memory holds %v", got[0])
				}
				// The first half is back from the next rank; the second half is the previous rank's.
				return first(r.x.CopyTo(all), holds(all[:50], r.Rank()+1), holds(all[50:], previous+1))
			}))
		})
	}
}

func holds(got []float32, want int) error {
	for i, v := range got {
		if v != float32(want) {
			return fmt.Errorf("element %d is %v, want %d", i, v, want)
		}
	}
	return nil
}

// TestMessageTags receives in another order than the sends: tags are independent.
func TestMessageTags(t *testing.T) {
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		x := gpu.Of(r.x)
		const parts = 10
		b := r.Batch()
		host := make([]float32, 100)
		for i := range host {
			host[i] = float32(i * (1 - r.Rank()))
		}
		if err := r.x.CopyFrom(host); err != nil {
			return err
		}
		for i := range parts {
			part := x.Slice(10*i, 10*i+10)
			if r.Rank() == 0 {
				b.Send(1, part, i)
			} else {
				b.Recv(0, x.Slice(90-10*i, 100-10*i), parts-1-i)
			}
		}
		w, err := b.Start(ctx)
		if err = first(err, w.Wait(ctx), r.x.CopyTo(host)); err != nil {
			return err
		}
		for i, v := range host {
			if v != float32(i) {
				return fmt.Errorf("element %d is %v", i, v)
			}
		}
		return nil
	}))
}

// TestMessageMismatch sends messages whose sides differ in the kind of memory or in length: both sides
// fail, and nothing hangs.
func TestMessageMismatch(t *testing.T) {
	for name, recv := range map[string]func(r *rank) tutti.Buffer{
		"3 x note of device memory": func(*rank) tutti.Buffer { return tutti.Of(make([]float32, 100)) },
		"99 x float32":              func(r *rank) tutti.Buffer { return gpu.Of(r.x).Slice(0, 99) },
	} {
		ok(t, run(t, 3, tutti.Config{}, func(ctx context.Context, r *rank) error {
			var err error
			switch r.Rank() {
			case 0:
				err = r.Send(ctx, 1, gpu.Of(r.x), 7)
			case 1:
				err = receive(ctx, r.Comm, 0, recv(r), 7)
			default:
				<-r.Done()
				err = r.Err()
			}
			if !errors.Is(err, tutti.ErrMismatch) || !strings.Contains(err.Error(), name) {
				return fmt.Errorf("%s: rank %d: %w", name, r.Rank(), err)
			}
			return nil
		}))
	}
}

// An expiring context reports that its deadline has passed when its channel is closed. A test closes the channel
// after its fault has happened, so that the deadline cannot pass too early.
type expiring struct {
	context.Context
	over <-chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.over }

func (e expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestMessageHangs makes the next kernel hang: that of the send on rank 0 or of the receive on rank 1, whichever
// starts first. The receiver's deadline then fails the group on all three ranks. Each rank aborts its NCCL
// communicator, which ends the hanging kernel.
func TestMessageHangs(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	t.Cleanup(control.Reset)
	fired := control.Fired()
	ok(t, run(t, 3, tutti.Config{}, func(ctx context.Context, r *rank) error {
		if r.Rank() == 0 {
			control.Fail(fakegpu.Kernel, 1, fakegpu.Hang)
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		var err error
		switch r.Rank() {
		case 0:
			err = r.Send(ctx, 1, gpu.Of(r.x), 7)
		case 1:
			over := make(chan struct{})
			go func() {
				for control.Fired() == fired && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				close(over)
			}()
			err = receive(expiring{ctx, over}, r.Comm, 0, gpu.Of(r.x), 7)
		}
		if err == nil {
			<-r.Done()
			err = r.Err()
		}
		if !errors.Is(err, tutti.ErrTimeout) || !strings.Contains(err.Error(), "Recv #") {
			return fmt.Errorf("rank %d: %w", r.Rank(), err)
		}
		return nil
	}))
	if control.Fired() == fired {
		t.Error("the fault did not happen")
	}
}

// receive returns the error of a Recv.
func receive(ctx context.Context, c *tutti.Comm, from int, buf tutti.Buffer, tag int) error {
	_, err := c.Recv(ctx, from, buf, tag)
	return err
}

// TestHostReceives receives host memory on a Comm with a device, from any rank and of unknown length, and
// device memory from any rank, which is refused.
func TestHostReceives(t *testing.T) {
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		if _, err := r.Recv(ctx, tutti.AnyRank, gpu.Of(r.x), 7); !errors.Is(err, tutti.ErrInvalid) {
			return fmt.Errorf("device memory from any rank: %w", err)
		}
		if r.Rank() == 0 {
			return errors.Join(r.Send(ctx, 1, tutti.Of([]int32{1, 2, 3}), 7), r.Send(ctx, 1, gpu.Of(r.x), 8))
		}
		got, m, err := tutti.RecvSlice[int32](ctx, r.Comm, tutti.AnyRank, 7)
		if err != nil || len(got) != 3 || m.From != 0 || got[2] != 3 {
			return fmt.Errorf("received %v of %+v: %w", got, m, err)
		}
		if m, err = r.Recv(ctx, 0, gpu.Of(r.x), 8); err != nil || m.From != 0 || m.Len != r.x.Len() {
			return fmt.Errorf("received %+v: %w", m, err)
		}
		return nil
	}))
}
