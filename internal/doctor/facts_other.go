//go:build !linux

package doctor

// lookAtLimits knows nothing of this system.
func (f *Facts) lookAtLimits() {}

// ProbeMemory says that ranks of this system share no memory.
func ProbeMemory() Memory { return Memory{} }
