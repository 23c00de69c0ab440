// Package cores divides the cores of a host among its ranks, and counts those that
// ranks have.
package affinity

import (
	"math/bits"
	"runtime"
	"slices"
)

// Share is one rank's part of the cores, by its number on the host; nil if there is
// not one for each.
func Share(cores []int, ranks, local int) []int {
	if len(cores) < ranks {
		return nil
	}
	return cores[local*len(cores)/ranks : (local+1)*len(cores)/ranks]
}

// Mask is a list of cores, short enough to be sent to all ranks: a bit for each.
func Mask(list []int) (mask []byte) {
	for _, c := range list {
		for len(mask) <= c/8 {
			mask = append(mask, 0)
		}
		mask[c/8] |= 1 << (c % 8)
	}
	return mask
}

// Count is how many cores processes have together, by their masks.
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

// Crowded reports whether so many processes of one host are more than the cores that
// they have together, by their masks. A process cannot tell by itself: it may have
// been bound to one core, as the others to theirs. Where that is not known, the cores
// of this process are taken for all.
func Oversubscribed(processes int, masks [][]byte) bool {
	n := Count(masks)
	if !Known(masks) {
		n = runtime.NumCPU()
	}
	return processes > n
}

// Known reports whether it is known of all processes which cores they have.
func Known(masks [][]byte) bool {
	return len(masks) > 0 && !slices.ContainsFunc(masks, func(mask []byte) bool { return len(mask) == 0 })
}

// Apart reports whether no two processes have a core in common, by their masks. Where
// that is not known, they may.
func Disjoint(masks [][]byte) bool {
	each := 0
	for i := range masks {
		each += Count(masks[i : i+1])
	}
	return Known(masks) && each == Count(masks)
}
