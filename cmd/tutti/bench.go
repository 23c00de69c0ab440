package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tutti-go/tutti/internal/bench"
)

// runBench is the command tutti bench. It returns the exit code of bench.Command.Run, which decides
// whether this process catches signals.
func runBench(a app, args []string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutti bench:", err)
		return bench.ExitFailed
	}
	c := &bench.Command{
		Self: []string{self, "bench"}, Stdout: os.Stdout, Stderr: os.Stderr,
		Progress: isTerminal(os.Stderr) && os.Getenv("TERM") != "dumb",
		Damage:   a.damage, Slow: a.slow,
		Catch: func() <-chan os.Signal {
			signals := make(chan os.Signal, 4)
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			return signals
		},
	}
	if hasGPU {
		c.Devices, c.Open = countGPUs, openGPU
	}
	return c.Run(context.Background(), args)
}
