package tutti

// Info says what a Comm is. It is a value: it does not change. The names of Engine, Transport and
// DevicePath are for people and logs; later versions may add others.
type Info struct {
	Name       string // that of Stats.Comm
	Generation int    // 0 after Join, Local, Split and Dup; every Shrink and Grow raises it
	Rank, Size int
	Late       bool // this process has joined a running job; see Config.Late

	// Engine is "shm" on one host, "network" if no two ranks share a host, and otherwise "hier",
	// which combines both.
	Engine string
	// Transport is "memory" between goroutines, "shared memory" between processes of a host, and
	// "tcp" or "tcp with tls" on the network. The engine "hier" has two, as in "shared memory
	// and tcp". A simulated Comm of package tuttitest has "simulated".
	Transport string
	// DevicePath is the path of device memory: "nccl", "host staging", or "" without a device.
	DevicePath string
	// Device is the ordinal of this rank's GPU, or -1 without a device.
	Device int

	// Hosts has, by rank, the lowest rank with which it shares a host, as SplitHost groups them.
	// With Config.NoSharedMemory each rank counts as a host of its own.
	Hosts []int
}

// Info returns what the Comm is. It may be called at any time, also on a poisoned or closed Comm.
func (c *Comm) Info() Info {
	d := c.e.Describe()
	return Info{
		Name: c.member.Title(), Generation: c.member.Generation(), Rank: c.rank, Size: c.size, Late: c.member.Late(),
		Engine: d.Engine, Transport: d.Transport, DevicePath: d.DevicePath, Device: d.Device, Hosts: c.e.SameHost(),
	}
}
