package job

import (
	"bytes"
	"crypto/rand"
	"os"
	"slices"
	"unsafe"

	"github.com/tutti-go/tutti/internal/segment"
)

const cookieBytes = 16

// sign puts something into this process's memory, by which others find out
// whether they can read it, and that it is the process they think it is: numbers
// of processes mean something else in another container.
func (j *Job) sign(c *card) {
	j.cookie = make([]byte, cookieBytes)
	_, _ = rand.Read(j.cookie) // never fails
	c.PID, c.Addr, c.Cookie = os.Getpid(), uint64(uintptr(unsafe.Pointer(&j.cookie[0]))), j.cookie
}

// readable are the neighbours whose memory this process can read.
func (j *Job) readable() (list []int) {
	for r := range j.links {
		p, seen := &j.peers[r], make([]byte, cookieBytes)
		if len(p.Cookie) != cookieBytes {
			continue
		}
		if err := segment.Peek(p.PID, unsafe.Pointer(&seen[0]), p.Addr, cookieBytes); err == nil && bytes.Equal(seen, p.Cookie) {
			list = append(list, r)
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
		return segment.Peek(j.peers[members[rank]].PID, dst, addr, n)
	}
}
