// Package affinity divides the CPUs of a host among its ranks, and counts the CPUs that ranks may
// use.
package affinity

import (
	"math/bits"
	"runtime"
	"slices"
)

// Share returns the CPUs of the rank with number local on the host, or nil if there are fewer CPUs
// than ranks.
func Share(cores []int, ranks, local int) []int {
	if len(cores) < ranks {
		return nil
	}
	return cores[local*len(cores)/ranks : (local+1)*len(cores)/ranks]
}

// Mask encodes a list of CPUs as a bit mask, to be sent to all ranks.
func Mask(list []int) (mask []byte) {
	for _, c := range list {
		for len(mask) <= c/8 {
			mask = append(mask, 0)
		}
		mask[c/8] |= 1 << (c % 8)
	}
	return mask
}

// Count returns the number of CPUs in at least one of the masks.
func Count(masks [][]byte) (n int) {
	var all []byte
	for _, mask := range masks {
		for i, b := range mask {
			if i == len(all) {
				all = append(all, 0)
			}
			all[i] |= b
		}
	}
	for _, b := range all {
		n += bits.OnesCount8(b)
	}
	return n
}

// Oversubscribed reports whether the processes of one host have fewer CPUs together than they are,
// by their masks. A process's own mask does not suffice, because every process may be bound to one
// CPU. If a mask is unknown, the number of CPUs of this process is used.
func Oversubscribed(processes int, masks [][]byte) bool {
	n := Count(masks)
	if !Known(masks) {
		n = runtime.NumCPU()
	}
	return processes > n
}

// Known reports whether the mask of every process is known.
func Known(masks [][]byte) bool {
	return len(masks) > 0 && !slices.ContainsFunc(masks, func(mask []byte) bool { return len(mask) == 0 })
}

// Disjoint reports whether all masks are known and no two processes share a CPU.
func Disjoint(masks [][]byte) bool {
	each := 0
	for i := range masks {
		each += Count(masks[i : i+1])
	}
	return Known(masks) && each == Count(masks)
}
