//go:build nogpu

package main

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/internal/bench"
)

const hasGPU = false

var openCard func(local int, nccl bool) (bench.Card, error)

func lookForGPUs() any { return nil }

func devices(context.Context, bool) (int, error) {
	return 0, errors.New("this tutti was built without GPUs")
}
