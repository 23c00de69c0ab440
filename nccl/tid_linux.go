package nccl

import "golang.org/x/sys/unix"

// thread returns the id of the thread that the goroutine is locked to.
func thread() int { return unix.Gettid() }
