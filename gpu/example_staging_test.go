package gpu_test

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/gpu"
)

// attach returns the Comms of n GPUs of this process. It uses NCCL, or host memory where NCCL is missing.
func attach(n int) ([]*tutti.Comm, error) {
	cfg := tutti.Config{Device: gpu.Auto()}
	comms, err := tutti.Local(n, cfg)
	if errors.Is(err, tutti.ErrNoDevicePath) {
		slog.Warn("device memory goes through host memory", "reason", err)
		cfg.HostStaging = true
		comms, err = tutti.Local(n, cfg)
	}
	return comms, err
}

// Example_hostStaging continues without NCCL. tutti uses host memory for device memory only if the program asks for it.
func Example_hostStaging() {
	comms, err := attach(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(comms), "rank,", comms[0].Stats().Staged, "operations through host memory")
	fmt.Println(comms[0].Close())
	// Output:
	// 1 rank, 0 operations through host memory
	// <nil>
}
