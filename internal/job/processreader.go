package job

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/segment"
)

// peek is how members of a group on this host read each other's memory; nil if a rank of the
// host cannot read the next one's. That each can read the next one's is taken for all: a
// system that lets a process read another one lets it read what that one can. Where it does
// not, the data takes another way at run time.
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

// processEnded is how members of a group on this host see that the process of one of them has
// ended, without a word from it.
func (j *Job) processEnded(members []int) func(rank int) bool {
	return func(rank int) bool { return j.peers[members[rank]].identity.Ended() }
}

// unreadable logs, once for all groups of this process, that a buffer of it could not be
// read by a neighbour.
func (j *Job) unreadable(reader int, reason error) {
	j.unreadableOnce.Do(func() {
		j.cfg.Logger.Warn("tutti: another process may not read a buffer of this rank; "+
			"from now on the data goes through shared memory, which is slower for some sizes",
			"rank", j.cfg.Rank, "reader", reader, "reason", reason)
	})
}
