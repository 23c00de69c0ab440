//go:build !nogpu

package main

import (
	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/card"
)

// hasGPU says that this program can load the libraries of GPUs. The tag nogpu
// leaves that out, and makes the program static.
const hasGPU = true

func openCard(local int, nccl bool) (bench.Card, error) { return card.Open(local, nccl) }

// lookForGPUs is the probe of that name.
func lookForGPUs() any { return card.Look() }
