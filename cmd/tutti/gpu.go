//go:build !nogpu

package main

import (
	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/gpuprobe"
)

// hasGPU reports whether this program can load the GPU libraries. The tag nogpu
// excludes them, which makes the program static.
const hasGPU = true

func openGPU(local int, nccl bool) (bench.GPU, error) { return gpuprobe.Open(local, nccl) }

// probeGPUs is the probe "gpu".
func probeGPUs() any { return gpuprobe.Probe() }
