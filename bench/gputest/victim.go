package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
)

// Where the victim is when it is killed.
const (
	beforeCall = iota // it has not called the operation that the others wait in
	inKernel          // it has called it, and its stream is held back, so that the others wait on the device
	noVictim          // there is no victim
)

// victimMain is a process that is a rank in one round after another, until it is killed. It
// reads "round ADDR RANK RANKS MODE VICTIM". It prints "ready" when the victim may be
// killed, "ns 0" when its operation has returned, and "ns 1" when it has seen the right
// error and has closed its Comm.
func victimMain() error {
	dev, err := cuda.Open(0, nil)
	if err != nil {
		return err
	}
	x, err := cuda.Alloc[float32](dev, small)
	if err == nil {
		err = x.Fill(1)
	}
	if err == nil {
		err = warm(x)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var mode, victim int
		cfg := tutti.Config{Device: gpu.Device(0), Timeout: commTimeout}
		if _, err := fmt.Sscanf(in.Text(), "round %s %d %d %d %d", &cfg.Addr, &cfg.Rank, &cfg.Size, &mode, &victim); err != nil {
			return err
		}
		c, err := tutti.Join(context.Background(), cfg)
		if err != nil {
			return err
		}
		err = survive(c, dev, x, mode, victim)
		took := time.Now()
		if err = errors.Join(err, c.Close()); err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		fmt.Println("ns 1", time.Since(took).Nanoseconds())
	}
	return errors.Join(x.Free(), dev.Close())
}

// warm makes the first Comm of the process, which loads and initialises the libraries.
func warm(x *cuda.Slice[float32]) error {
	return tutti.RunLocal(context.Background(), 1, tutti.Config{Device: gpu.Device(0)}, func(ctx context.Context, c *tutti.Comm) error {
		return c.AllReduce(ctx, gpu.Of(x), tutti.Max)
	})
}

// survive performs some operations and then waits in one that the victim never completes. On a
// survivor it returns an error unless the operation reports exactly the victim as lost. On the
// victim it does not return before the kill.
func survive(c *tutti.Comm, dev *cuda.Device, x *cuda.Slice[float32], mode, victim int) error {
	ctx := context.Background()
	for range 3 {
		if err := c.AllReduce(ctx, gpu.Of(x), tutti.Max); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	if mode == noVictim {
		return nil
	}
	if c.Rank() == victim {
		return awaitKill(ctx, c, dev, x, mode)
	}
	err := c.AllReduce(ctx, gpu.Of(x), tutti.Max)
	fmt.Println("ns 0") // the parent measures the time from the kill to this line
	var e *tutti.Error
	if !errors.Is(err, tutti.ErrRankLost) || !errors.As(err, &e) || !slices.Equal(e.Lost, []int{victim}) {
		return fmt.Errorf("rank %d was killed, and this one was told: %w", victim, err)
	}
	return nil
}

// awaitKill waits to be killed: without the operation, or, in mode inKernel, with it enqueued on a
// stream that is never released. It returns only with an error.
func awaitKill(ctx context.Context, c *tutti.Comm, dev *cuda.Device, x *cuda.Slice[float32], mode int) error {
	if mode == inKernel {
		s, err := dev.NewStream()
		if err != nil {
			return err
		}
		hold, err := cuda.AllocHost[uint32](dev, 1)
		if err != nil {
			return err
		}
		at, err := hold.DevicePointer()
		if err == nil {
			err = s.WaitValue(at, 1)
		}
		if err != nil {
			return err
		}
		if _, err := c.Batch().On(s).AllReduce(gpu.Of(x), tutti.Max).Start(ctx); err != nil {
			return err
		}
	}
	time.Sleep(time.Hour)
	return errors.New("nobody killed it")
}
