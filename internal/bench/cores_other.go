//go:build !linux

package bench

// allowedCores is not known here.
func allowedCores() []int { return nil }
