package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// settleLast makes rank 0 the root of Broadcasts and settles. The other ranks call the same Broadcast late, or
// have closed a group when rank 0 settles it. It returns an error if a rank fails or waits for too long.
func settleLast(ctx context.Context, e engine.Engine) error {
	x := int32(e.Rank())
	broadcast := func(e engine.Engine, seq uint64, root int) error {
		m := engine.Mem{Ptr: unsafe.Pointer(&x), N: 1, Type: kernel.Int32}
		return e.Run(ctx, seq, []engine.Call{{Verb: engine.Broadcast, Root: root, Dst: m, Src: m}})
	}
	settled := func(e engine.Engine) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		begin := time.Now()
		engine.Settle(ctx, e)
		if f := e.Failure(); f != nil {
			return time.Since(begin), f
		}
		return time.Since(begin), ctx.Err()
	}
	all := make([]int, e.Size())
	for r := range all {
		all[r] = r
	}
	if err := e.Run(ctx, 1, []engine.Call{{Verb: engine.Dup}}); err != nil {
		return err
	}
	sub, err := e.Sub(ctx, 1, all)
	if err != nil {
		return err
	}
	if e.Rank() != 0 {
		time.Sleep(20 * time.Millisecond) // usually long enough that rank 0 settles
	}
	took, err := time.Duration(0), broadcast(sub, 1, 0)
	if err == nil {
		took, err = settled(sub)
	}
	fmt.Println("late call:", took)
	if err = errors.Join(err, sub.Close(), e.Run(ctx, 2, []engine.Call{{Verb: engine.Barrier}})); err != nil {
		return fmt.Errorf("the same calls: %w", err)
	}
	if err := e.Run(ctx, 3, []engine.Call{{Verb: engine.Dup}}); err != nil {
		return err
	}
	if sub, err = e.Sub(ctx, 3, all); err != nil {
		return err
	}
	err = broadcast(sub, 1, 0)
	if e.Rank() != 0 {
		err = errors.Join(err, sub.Close())
	}
	if err := errors.Join(err, e.Run(ctx, 4, []engine.Call{{Verb: engine.Barrier}})); err != nil {
		return err
	}
	if e.Rank() == 0 { // the others have closed the group
		took, err := settled(sub)
		fmt.Println("closed group:", took)
		if err = errors.Join(err, sub.Close()); err != nil {
			return fmt.Errorf("a closed group: %w", err)
		}
	}
	return nil
}

// settleDifferent has rank 1 call a Broadcast with another root. It is an error on ranks 0 and 1, which
// settle. Other ranks wait until they know of it.
func settleDifferent(ctx context.Context, e engine.Engine) error {
	fmt.Println("ready")
	if _, err := fmt.Scanln(); err != nil { // otherwise the failure could end the Join of a rank
		return err
	}
	x, root := int32(0), 0
	if e.Rank() == 1 {
		root = 1
	}
	m := engine.Mem{Ptr: unsafe.Pointer(&x), N: 1, Type: kernel.Int32}
	err := e.Run(ctx, 1, []engine.Call{{Verb: engine.Broadcast, Root: root, Dst: m, Src: m}})
	if e.Rank() > 1 {
		<-e.Failed()
		return nil
	}
	if err == nil {
		engine.Settle(ctx, e)
		err = e.Failure()
	}
	if !errors.Is(err, engine.ErrMismatch) {
		return fmt.Errorf("rank %d does not know that the calls differ: %w", e.Rank(), err)
	}
	return nil
}

// settleLate makes both ranks call a Broadcast with themselves as the root. Rank 1 calls it when the test says so:
// rank 0 has left. Rank 1 must find that the calls differ.
func settleLate(ctx context.Context, e engine.Engine) error {
	if e.Rank() == 1 {
		fmt.Println("ready")
		if _, err := fmt.Scanln(); err != nil {
			return err
		}
	}
	x := int32(0)
	m := engine.Mem{Ptr: unsafe.Pointer(&x), N: 1, Type: kernel.Int32}
	err := e.Run(ctx, 1, []engine.Call{{Verb: engine.Broadcast, Root: e.Rank(), Dst: m, Src: m}})
	if err == nil {
		limit := time.Minute
		if e.Rank() == 0 {
			limit = 50 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		engine.Settle(ctx, e)
		if f := e.Failure(); f != nil {
			err = f
		}
	}
	if (e.Rank() == 1) != errors.Is(err, engine.ErrMismatch) {
		return fmt.Errorf("rank %d has another result: %w", e.Rank(), err)
	}
	return nil
}

// TestSettleLate has rank 0 leave before rank 1 makes its call.
func TestSettleLate(t *testing.T) {
	for _, network := range []string{"", "1"} {
		t.Run("network="+network, func(t *testing.T) {
			w := start(t, 2, "settle late", "TUTTI_TEST_NETWORK="+network)
			w.out[1].Await(t, "ready", 1)
			if err := w.cmds[0].Wait(); err != nil {
				t.Errorf("rank 0: %v\n%s", err, w.out[0])
			}
			if _, err := io.WriteString(w.in[1], "\n"); err != nil {
				t.Fatal(err)
			}
			if err := w.cmds[1].Wait(); err != nil {
				t.Errorf("rank 1: %v\n%s", err, w.out[1])
			}
		})
	}
}

// TestSettle settles groups in shared memory, over the network, and over both.
func TestSettle(t *testing.T) {
	for _, n := range []int{2, 4} {
		for name, env := range map[string]string{
			"shared": "TUTTI_TEST_NETWORK=", "network": "TUTTI_TEST_NETWORK=1", "both": "TUTTI_TEST_HOSTS=" + "a b a b"[:2*n-1],
		} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				w := start(t, n, "settle", env)
				w.wait(t)
				t.Log(w.out[0])
				w = start(t, n, "settle different", env)
				for _, out := range w.out {
					out.Await(t, "ready", 1)
				}
				w.say(t, "")
				w.wait(t)
			})
		}
	}
}
