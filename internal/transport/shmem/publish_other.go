//go:build !amd64 || race

package shmem

import "sync/atomic"

// publish stores v in a word of shared memory. A rank that sees v sees all earlier stores.
func publish(word *atomic.Uint64, v uint64) { word.Store(v) }
