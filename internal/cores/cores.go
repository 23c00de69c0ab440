// Package cores divides the cores of a host among its ranks.
package cores

// Share is one rank's part of the cores, by its number on the host; nil if there is
// not one for each.
func Share(cores []int, ranks, local int) []int {
	if len(cores) < ranks {
		return nil
	}
	return cores[local*len(cores)/ranks : (local+1)*len(cores)/ranks]
}
