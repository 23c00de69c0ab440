//go:build !linux

package affinity

// Allowed returns nil: the CPUs are not known on this system.
func Allowed() []int { return nil }

// BindThread does nothing: this system cannot bind threads.
func BindThread([]int) error { return nil }

// Bind does nothing: this system cannot bind processes.
func Bind([]int) error { return nil }
