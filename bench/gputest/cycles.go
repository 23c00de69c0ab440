package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/nccl"
)

// The Go counterpart of the C driver's "cycles". Communicators of one rank are made, used
// and closed. Every failEvery-th Init waits for a second rank that does not come, and is
// cancelled after cancelAfter. WARM and FAIL_EVERY of bench/peers/nccl.c are copies.
const (
	warmCycles  = 10 // cycles before the first measurement
	failEvery   = 5  // cycles
	cancelAfter = 20 * time.Millisecond
	settleAfter = time.Second // before each measurement
)

// usage returns the device's used memory in bytes, and this process's numbers of
// descriptors and threads.
func usage(d *cuda.Device) ([]int64, error) {
	free, total, err := d.Memory()
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	threads, err := os.ReadDir("/proc/self/task")
	return []int64{int64(total - free), int64(len(files)), int64(len(threads))}, err
}

// cycles makes communicators until their number or the seconds are reached. It prints the number of
// cycles, and the usage after warmCycles and after the last cycle. After an error the process
// exits, so that nothing is freed.
func cycles(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: gputest cycles CYCLES SECONDS")
	}
	times, e1 := strconv.Atoi(args[0])
	seconds, e2 := strconv.Atoi(args[1])
	if err := errors.Join(e1, e2); err != nil {
		return err
	}
	lib, err := nccl.Load("")
	if err != nil {
		return err
	}
	dev, err := cuda.Open(0, nil)
	if err != nil {
		return err
	}
	x, err := cuda.Alloc[float32](dev, small)
	if err != nil {
		return err
	}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	var before []int64
	done := 0
	for ; done < times && (done < warmCycles || time.Now().Before(end)); done++ {
		if done == warmCycles {
			time.Sleep(settleAfter)
			if before, err = usage(dev); err != nil {
				return err
			}
		}
		if err := cycle(lib, dev, x, done%failEvery == failEvery-1); err != nil {
			return fmt.Errorf("cycle %d: %w", done, err)
		}
	}
	time.Sleep(settleAfter)
	after, err := usage(dev)
	if err != nil {
		return err
	}
	if len(before) == 0 {
		return fmt.Errorf("%d cycles are too few", times)
	}
	fmt.Println("ns", done, before[0], before[1], before[2], after[0], after[1], after[2])
	return errors.Join(x.Free(), dev.Close())
}

// cycle makes a communicator of one rank, uses it once, and closes it. With fail it instead cancels
// an Init that waits for a second rank, and returns an error unless Init reports the deadline.
func cycle(lib *nccl.Library, dev *cuda.Device, x *cuda.Slice[float32], fail bool) error {
	s, err := dev.NewStream()
	if err != nil {
		return err
	}
	id, err := lib.NewID()
	if err != nil {
		return err
	}
	if fail {
		ctx, cancel := context.WithTimeout(context.Background(), cancelAfter)
		defer cancel()
		if _, err := lib.Init(ctx, dev, id, 0, 2, nccl.Config{NonBlocking: true}); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("a rank that does not come is reported as %w", err)
		}
		return s.Close()
	}
	c, err := lib.Init(context.Background(), dev, id, 0, 1, nccl.Config{NonBlocking: true})
	if err != nil {
		return err
	}
	b := nccl.Of(x)
	return errors.Join(c.AllReduce(b, b, nccl.Sum, s), s.Synchronize(), c.Close(), s.Close())
}
