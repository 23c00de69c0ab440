package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
)

// mismatchRank is a rank that takes part in disagreements, in one Comm after the other, as its
// input says. It prints how each ended; that is no error of the process. It returns when its input
// ends.
func mismatchRank(cfg tutti.Config, in *bufio.Reader) error {
	most := hostMemory
	if os.Getenv("FAULTS_TRANSPORT") == "nccl" {
		dev, err := cuda.Open(0, nil)
		if err != nil {
			return err
		}
		defer dev.Close()
		cfg.Device = gpu.Device(0)
		// Processes that share a GPU must be different hosts to NCCL.
		for name, value := range map[string]string{"NCCL_HOSTID": "faults-" + os.Getenv("TUTTI_RANK"), "NCCL_SOCKET_IFNAME": "lo"} {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
		most = func(n int) *memory { return deviceMemory(dev, n) }
	}
	fmt.Println("ready")
	for {
		var number, n, odd int
		if _, err := fmt.Fscanln(in, &number, &n, &odd); err != nil {
			return nil // end of input
		}
		m := most(bufferElems(n))
		if m == nil {
			return errors.New("there is not enough device memory")
		}
		c, err := tutti.Join(context.Background(), cfg)
		if err != nil {
			return err
		}
		began, err := disagreements[number].disagree(context.Background(), c, m, n, odd)
		e := newEnd(0, nil, err)
		e.Began = began.UnixNano()
		e.print()
		if err := errors.Join(c.Close(), m.free()); err != nil {
			return err
		}
	}
}

// deviceMemory returns buffers on a device, or nil if there is not enough memory. After nil the
// process exits, so nothing is freed.
func deviceMemory(dev *cuda.Device, n int) *memory {
	m := &memory{host: tutti.Of(make([]float32, n))}
	var free []func() error
	m.free = func() (err error) {
		for _, f := range free {
			err = errors.Join(err, f())
		}
		return err
	}
	for i := range m.floats {
		x, err := cuda.Alloc[float32](dev, n)
		if err != nil {
			return nil
		}
		free = append(free, x.Free)
		m.floats[i] = gpu.Of(x)
	}
	x, err := cuda.Alloc[int32](dev, n)
	if err != nil {
		return nil
	}
	free = append(free, x.Free)
	m.ints = gpu.Of(x)
	return m
}
