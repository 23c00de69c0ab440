//go:build !linux

package doctor

// readLimits does nothing on this system.
func (f *Facts) readLimits() {}

// readSystem does nothing on this system.
func (f *Facts) readSystem() {}

// ProbeMemory reports that processes share no memory on this system.
func ProbeMemory() Memory { return Memory{} }
