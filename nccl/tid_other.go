//go:build !linux

package nccl

// thread is never asked for: there is no Library here.
func thread() int { return 0 }
