package job

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/segment"
)

// processReader returns the function by which members on this host read each other's memory, or nil
// if a rank of the host cannot read the next rank's memory. Reading is tested in this ring only: a
// system that lets a process read another one usually allows the reverse. If a read fails at run
// time, the data goes through shared memory.
func (j *Job) processReader(members []int) func(rank int, dst unsafe.Pointer, addr uint64, n int) error {
	for r, host := range j.hosts {
		if host == j.hosts[j.cfg.Rank] && !j.reads[r] {
			return nil
		}
	}
	return func(rank int, dst unsafe.Pointer, addr uint64, n int) error {
		return segment.ReadProcess(j.peers[members[rank]].identity, dst, addr, n)
	}
}

// processEnded returns a function that reports whether the process of a member has exited without
// notice. All members are on this host.
func (j *Job) processEnded(members []int) func(rank int) bool {
	return func(rank int) bool { return j.peers[members[rank]].identity.Ended() }
}

// unreadable logs once per process that another rank could not read a buffer of this process.
func (j *Job) unreadable(reader int, reason error) {
	j.unreadableOnce.Do(func() {
		j.cfg.Logger.Warn("tutti: another process may not read a buffer of this rank; "+
			"from now on the data goes through shared memory, which is slower for some sizes",
			"rank", j.cfg.Rank, "reader", reader, "reason", reason)
	})
}
