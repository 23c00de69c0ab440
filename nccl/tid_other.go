//go:build !linux

package nccl

// thread is never called: no Library can be loaded on this system.
func thread() int { return 0 }
