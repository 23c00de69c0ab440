//go:build !linux

package doctor

// lookAtLimits knows nothing of this system.
func (f *Facts) lookAtLimits() {}

// lookAtSystem knows nothing of it, either.
func (f *Facts) lookAtSystem() {}

// ProbeMemory says that ranks of this system share no memory.
func ProbeMemory() Memory { return Memory{} }
