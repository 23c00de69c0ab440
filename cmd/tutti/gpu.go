//go:build !nogpu

package main

import (
	"context"
	"encoding/json"

	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/bench/card"
)

// hasGPU says that this program can load the libraries of GPUs.
const hasGPU = true

var openCard func(local int, nccl bool) (bench.Card, error) = card.Open

// lookForGPUs is the probe of that name.
func lookForGPUs() any { return card.Look() }

// devices asks another process how many GPUs can be used: libraries that are broken
// take that one with them.
func devices(ctx context.Context, nccl bool) (int, error) {
	text, err := probe(ctx, "gpu")
	if err != nil {
		return 0, err
	}
	var g card.GPUs
	if err := json.Unmarshal(text, &g); err != nil {
		return 0, err
	}
	return g.Usable(nccl)
}
