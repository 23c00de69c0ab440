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

// How a rank dies; nobody is for a round in which none does.
const (
	absent = iota // it does not come to the operation
	onGPU         // it has come, and is held back on the device, where the others wait for it
	nobody
)

// mortal is a process that is a rank in one round after another, for as long as it
// lives. It reads "round ADDR RANK RANKS MODE VICTIM", says "ready" when it is where
// the victim is to be killed, and "ns" and whether it was told the right thing then.
func mortal() error {
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
		err = liveRound(c, dev, x, mode, victim)
		took := time.Now()
		if err = errors.Join(err, c.Close()); err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		fmt.Println("ns 1", time.Since(took).Nanoseconds())
	}
	return errors.Join(x.Free(), dev.Close())
}

// warm loads and prepares all that the first Comm of a process needs.
func warm(x *cuda.Slice[float32]) error {
	return tutti.RunLocal(context.Background(), 1, tutti.Config{Device: gpu.Device(0)}, func(ctx context.Context, c *tutti.Comm) error {
		return c.AllReduce(ctx, gpu.Of(x), tutti.Max)
	})
}

// liveRound works a little and then waits for an operation that the victim will
// never do.
func liveRound(c *tutti.Comm, dev *cuda.Device, x *cuda.Slice[float32], mode, victim int) error {
	ctx := context.Background()
	for range 3 {
		if err := c.AllReduce(ctx, gpu.Of(x), tutti.Max); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	if mode == nobody {
		return nil
	}
	if c.Rank() == victim {
		return dieHere(ctx, c, dev, x, mode)
	}
	err := c.AllReduce(ctx, gpu.Of(x), tutti.Max)
	fmt.Println("ns 0") // the time counts from the kill to this line
	var e *tutti.Error
	if !errors.Is(err, tutti.ErrRankLost) || !errors.As(err, &e) || !slices.Equal(e.Lost, []int{victim}) {
		return fmt.Errorf("rank %d was killed, and this one was told: %w", victim, err)
	}
	return nil
}

// dieHere waits to be killed.
func dieHere(ctx context.Context, c *tutti.Comm, dev *cuda.Device, x *cuda.Slice[float32], mode int) error {
	if mode == onGPU {
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
