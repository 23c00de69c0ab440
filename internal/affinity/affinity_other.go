//go:build !linux

package affinity

// Allowed is not known here.
func Allowed() []int { return nil }

// BindThread does nothing where a thread cannot be bound.
func BindThread([]int) error { return nil }

// Bind does nothing where a process cannot be bound.
func Bind([]int) error { return nil }
