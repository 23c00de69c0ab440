package main

import (
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// hostClock returns a clock in nanoseconds that all processes of the host share. Go's monotonic
// clock begins at zero in each process, and the system call is too slow for timing. So hostClock
// computes the offset between the two once, from the closest of several readings. The clock may be
// called from any goroutine.
func hostClock() func() int64 {
	base := time.Now()
	var offset int64
	closest := time.Duration(math.MaxInt64)
	for range 100 {
		var t unix.Timespec
		before := time.Since(base)
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
			break
		}
		after := time.Since(base)
		if after-before < closest {
			closest = after - before
			offset = t.Nano() - int64(before+after)/2
		}
	}
	return func() int64 { return offset + int64(time.Since(base)) }
}

// summary sorts times in nanoseconds and returns the columns of a table.
func summary(times []int64, elapsed int64) sample {
	slices.Sort(times)
	n := len(times)
	us := func(i int) float64 { return float64(times[i]) / 1e3 }
	return sample{
		iters: n, p50: us(n / 2), p99: us(n * 99 / 100), p999: us(n * 999 / 1000), min: us(0),
		perSecond: float64(n) * 1e9 / float64(elapsed),
	}
}
