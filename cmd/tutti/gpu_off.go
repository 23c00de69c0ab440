//go:build nogpu

package main

import (
	"errors"

	"github.com/tutti-go/tutti/internal/bench"
)

const hasGPU = false

var errNoGPU = errors.New("this tutti was built without GPUs (tag nogpu)")

func openGPU(int, bool) (bench.GPU, error) { return nil, errNoGPU }

func probeGPUs() any { return nil }
