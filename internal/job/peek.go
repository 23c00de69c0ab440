package job

import (
	"slices"
	"unsafe"

	"github.com/tutti-go/tutti/internal/segment"
)

// readable are the neighbours whose memory this process can read.
func (j *Job) readable() (list []int) {
	for r := range j.links {
		var seen byte
		if s := j.peers[r].Sign; s != nil && segment.Peek(s, unsafe.Pointer(&seen), s.Addr, 1) == nil {
			list = append(list, r)
			_ = s.Trust(j.proofs[r]) // where it cannot be, the sign is looked at each time
		}
	}
	return list
}

// peek is how members of a group read each other's memory; nil if one cannot.
func (j *Job) peek(members []int) func(rank int, dst unsafe.Pointer, addr uint64, n int) error {
	for _, r := range members {
		if slices.ContainsFunc(members, func(s int) bool { return r != s && !j.reads[r][s] }) {
			return nil
		}
	}
	return func(rank int, dst unsafe.Pointer, addr uint64, n int) error {
		return segment.Peek(j.peers[members[rank]].Sign, dst, addr, n)
	}
}

// unreadable logs, once for all groups of this process, that a buffer of it could not be
// read by a neighbour.
func (j *Job) unreadable(reader int, reason error) {
	j.logged.Do(func() {
		j.cfg.Logger.Warn("tutti: another process may not read a buffer of this rank; "+
			"from now on the data goes through shared memory, which is slower for some sizes",
			"rank", j.cfg.Rank, "reader", reader, "reason", reason)
	})
}
