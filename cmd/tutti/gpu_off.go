//go:build nogpu

package main

import (
	"errors"

	"github.com/tutti-go/tutti/internal/bench"
)

const hasGPU = false

var errNoGPU = errors.New("this tutti was built without GPUs (tag nogpu)")

func openCard(int, bool) (bench.Card, error) { return nil, errNoGPU }

func lookForGPUs() any { return nil }
