package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti"
)

// TestSplit makes groups by color and key, a group of a group, and the ranks of the host. Aborting a Dup
// fails only that Comm.
func TestSplit(t *testing.T) {
	comms := local(t, 7, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		color := c.Rank() % 3
		if c.Rank() == 6 {
			color = tutti.NoGroup
		}
		sub, err := c.Split(ctx, color, -c.Rank())
		if err != nil {
			return err
		}
		if c.Rank() == 6 {
			if sub != nil {
				return errors.New("NoGroup got a Comm")
			}
			return sub.Close()
		}
		defer sub.Close()
		// The keys reverse the order.
		if sub.Size() != 2 || sub.Rank() != 1-c.Rank()/3 {
			return fmt.Errorf("rank %d of %d", sub.Rank(), sub.Size())
		}
		got := make([]int, 2)
		if err := sub.AllGather(ctx, tutti.Of(got), tutti.Of([]int{c.Rank()})); err != nil {
			return err
		}
		if want := []int{color + 3, color}; !slices.Equal(got, want) {
			return fmt.Errorf("members %v, want %v", got, want)
		}
		// A group of a group.
		own, err := sub.Split(ctx, sub.Rank(), 0)
		if err != nil {
			return err
		}
		defer own.Close()
		if one, err := tutti.AllReduceValue(ctx, own, 5, tutti.Sum); err != nil || one != 5 {
			return fmt.Errorf("%d, %w", one, err)
		}
		return nil
	})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		host, err := c.SplitHost(ctx)
		if err != nil {
			return err
		}
		defer host.Close()
		dup, err := host.Dup(ctx)
		if err != nil {
			return err
		}
		defer dup.Close()
		if dup.Size() != 7 || dup.Rank() != c.Rank() {
			return fmt.Errorf("rank %d of %d", dup.Rank(), dup.Size())
		}
		// A failure stays in the Comm where it began.
		if c.Rank() == 3 {
			dup.Abort(nil)
		}
		if err := dup.Barrier(ctx); !errors.Is(err, tutti.ErrRevoked) {
			return fmt.Errorf("the Comm that was aborted: %w", err)
		}
		return host.Barrier(ctx)
	})
}

// TestComms uses four Comms of each rank, from a goroutine each. Each goroutine closes its Comm and sends one
// error or nil.
func TestComms(t *testing.T) {
	const groups = 4
	comms := local(t, 3, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		errs := make(chan error, groups)
		for g := range groups {
			sub, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			go func() {
				defer sub.Close()
				for i := range 200 {
					sum, err := tutti.AllReduceValue(ctx, sub, i*g, tutti.Sum)
					if err == nil && sum != 3*i*g {
						err = fmt.Errorf("group %d, round %d: %d", g, i, sum)
					}
					if err != nil {
						errs <- err
						return
					}
				}
				errs <- nil
			}()
		}
		var err error
		for range groups {
			err = errors.Join(err, <-errs)
		}
		return err
	})
}

// TestAlloc checks that memory of Alloc can be used after Close of its Comm and freed twice. Ranks with
// different sizes all fail with ErrMismatch; a negative size is ErrInvalid.
func TestAlloc(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		m, err := tutti.Alloc[tutti.BFloat16](ctx, c, 1000)
		if err != nil {
			return err
		}
		for i := range m.Slice() {
			m.Slice()[i] = tutti.ToBFloat16(float32(c.Rank() + 1))
		}
		if err := c.AllReduce(ctx, m.Buffer(), tutti.Sum); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		if got := m.Slice()[999].Float32(); got != 3 {
			return fmt.Errorf("%v", got)
		}
		return errors.Join(m.Free(), m.Free())
	})

	comms = local(t, 2, tutti.Config{})
	errs := each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		_, err := tutti.Alloc[int8](ctx, c, 10+c.Rank())
		return err
	})
	for r, err := range errs {
		if !errors.Is(err, tutti.ErrMismatch) || !strings.Contains(err.Error(), "Alloc(11 x int8)") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if _, err := tutti.Alloc[int64](t.Context(), local(t, 1, tutti.Config{})[0], -1); !errors.Is(err, tutti.ErrInvalid) {
		t.Error(err)
	}
}

// TestValues checks AllReduceValue with a named type, and AllGatherSlices with a different length on each rank.
func TestValues(t *testing.T) {
	type grams float64
	comms := local(t, 3, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		mean, err := tutti.AllReduceValue(ctx, c, grams(c.Rank()), tutti.Max)
		if err != nil || mean != 2 {
			return fmt.Errorf("%v, %w", mean, err)
		}
		mine := make([]grams, c.Rank())
		for i := range mine {
			mine[i] = grams(10*c.Rank() + i)
		}
		got, err := tutti.AllGatherSlices(ctx, c, mine)
		if err != nil {
			return err
		}
		if want := "[[] [10] [20 21]]"; fmt.Sprint(got) != want {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// TestTypes checks TypeOf for every element type, the 16-bit conversions, Slice, and the texts of operators
// and types.
func TestTypes(t *testing.T) {
	for _, test := range []struct{ got, want tutti.DType }{
		{tutti.TypeOf[int8](), tutti.Int8Type},
		{tutti.TypeOf[uint8](), tutti.Uint8Type},
		{tutti.TypeOf[int16](), tutti.Int16Type},
		{tutti.TypeOf[uint16](), tutti.Uint16Type},
		{tutti.TypeOf[int32](), tutti.Int32Type},
		{tutti.TypeOf[uint32](), tutti.Uint32Type},
		{tutti.TypeOf[int64](), tutti.Int64Type},
		{tutti.TypeOf[uint64](), tutti.Uint64Type},
		{tutti.TypeOf[int](), tutti.Int64Type},
		{tutti.TypeOf[uint](), tutti.Uint64Type},
		{tutti.TypeOf[float32](), tutti.Float32Type},
		{tutti.TypeOf[float64](), tutti.Float64Type},
		{tutti.TypeOf[tutti.Float16](), tutti.Float16Type},
		{tutti.TypeOf[tutti.BFloat16](), tutti.BFloat16Type},
	} {
		if test.got != test.want {
			t.Errorf("%v, want %v", test.got, test.want)
		}
	}
	if f := tutti.ToFloat16(0.1).Float32(); f != 0.099975586 {
		t.Error(f)
	}
	b := tutti.Of(make([]int8, 10))
	if s := b.Slice(2, 5); s.Len() != 3 || s.Type() != tutti.Int8Type || s.Type().Size() != 1 {
		t.Error(s)
	}
	if got := fmt.Sprint(tutti.Sum, tutti.PreMul(0.5), tutti.Xor, tutti.Float16Type, tutti.Uint16Type); got != "sum premul(0.5) xor float16 uint16" {
		t.Error(got)
	}
}

// TestRunLocal checks what ends RunLocal: a function that returns an error aborts the other ranks and is the
// result; one that calls runtime.Goexit counts as failed; one that returns nil early is lost to the ranks
// that still wait.
func TestRunLocal(t *testing.T) {
	why := errors.New("no disk")
	err := tutti.RunLocal(t.Context(), 4, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 2 {
			return why
		}
		if err := c.Barrier(ctx); !errors.Is(err, tutti.ErrRevoked) || !strings.Contains(err.Error(), "no disk") {
			return fmt.Errorf("another cause: %w", err)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, why) || err.Error() != "rank 2: no disk" {
		t.Error(err)
	}
	err = tutti.RunLocal(t.Context(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 0 {
			runtime.Goexit()
		}
		return c.Barrier(ctx)
	})
	if err == nil || !strings.Contains(err.Error(), "rank 0: the function exited") {
		t.Error(err)
	}
	err = tutti.RunLocal(t.Context(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 0 {
			return nil // and leaves
		}
		return c.Barrier(ctx)
	})
	if !errors.Is(err, tutti.ErrRankLost) {
		t.Error(err)
	}
}

// TestFreedMemory uses the Buffer of memory after Free. Operations refuse it, and the Comm stays healthy.
func TestFreedMemory(t *testing.T) {
	all(t, local(t, 2, tutti.Config{}), func(ctx context.Context, c *tutti.Comm) error {
		m, err := tutti.Alloc[int](ctx, c, 4)
		if err != nil {
			return err
		}
		if err := m.Free(); err != nil {
			return err
		}
		for _, b := range []tutti.Buffer{m.Buffer(), m.Buffer().Slice(0, 2)} {
			err := c.AllReduce(ctx, b, tutti.Sum)
			if !errors.Is(err, tutti.ErrInvalid) || !strings.Contains(err.Error(), "Free has released") {
				return fmt.Errorf("AllReduce of freed memory: %w", err)
			}
		}
		return errors.Join(c.Barrier(ctx), c.Close())
	})
}
