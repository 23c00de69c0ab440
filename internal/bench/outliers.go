package bench

import (
	"fmt"
	"slices"
	"strings"
)

// How much slower than the typical link of its kind a link must be to be reported:
// by a factor, and by a number of microseconds, which the wakeup of a thread may
// take.
const (
	slowFactor     = 2.0
	slowSmallDelay = 20.0
	slowLargeDelay = 50.0
	// crowdedDelay replaces both delays where ranks share cores.
	crowdedDelay = 1000.0
)

// A slowLink is a slow link and the reason why it is reported.
type slowLink struct {
	Link
	why string
}

// minDelays returns by how many microseconds a small and a large message must be
// late.
func minDelays(crowded bool) [2]float64 {
	if crowded {
		return [2]float64{crowdedDelay, crowdedDelay}
	}
	return [2]float64{slowSmallDelay, slowLargeDelay}
}

// slowLinks returns the links that are slow among the links of their kind: within
// hosts, or between hosts.
func slowLinks(links []Link, crowded bool) []slowLink {
	least := minDelays(crowded)
	var slow []slowLink
	for _, remote := range []bool{false, true} {
		var kind []Link
		var small, large []float64
		for _, l := range links {
			if l.Remote == remote {
				kind = append(kind, l)
				small, large = append(small, l.Small.P50), append(large, l.Large.P50)
			}
		}
		ms, ml := typical(small), typical(large)
		for _, l := range kind {
			var why []string
			if l.Small.P50 > slowFactor*ms && l.Small.P50 > ms+least[0] {
				why = append(why, fmt.Sprintf("a small message takes %s us (usual: %s)", shortNumber(l.Small.P50), shortNumber(ms)))
			}
			if l.Large.P50 > slowFactor*ml && l.Large.P50 > ml+least[1] {
				why = append(why, fmt.Sprintf("%s GB/s (usual: %s)", shortNumber(l.Large.AlgBW), shortNumber(largeBytes/ml/1e3)))
			}
			if why != nil {
				slow = append(slow, slowLink{l, strings.Join(why, ", ")})
			}
		}
	}
	return slow
}

// typical returns the first quartile, because one slow rank of three is part of two
// thirds of all links.
func typical(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(list))[(len(list)-1)/4]
}

// Outliers describes the slow links: a rank, if all its links and no other links
// are slow; otherwise links.
func Outliers(links []Link, ranks int, crowded bool) []string {
	slow := slowLinks(links, crowded)
	count := make([]int, ranks)
	for _, l := range slow {
		count[l.From]++
		count[l.To]++
	}
	var words []string
	named := make([]bool, ranks)
	for r := range ranks {
		// All its links are slow, and more of them than of any other rank.
		others := slices.Concat(count[:r], count[r+1:])
		if ranks > 2 && count[r] == 2*(ranks-1) && count[r] > slices.Max(others) {
			named[r] = true
			words = append(words, fmt.Sprintf("rank %d is slow: %d of its %d links stand out; %s", r, count[r], 2*(ranks-1), example(slow, r)))
		}
	}
	for _, l := range slow {
		if !named[l.From] && !named[l.To] {
			words = append(words, fmt.Sprintf("the link from rank %d to rank %d is slow: %s", l.From, l.To, l.why))
		}
	}
	return words
}

// example describes why one of a rank's links is slow.
func example(slow []slowLink, rank int) string {
	for _, l := range slow {
		if l.From == rank || l.To == rank {
			return fmt.Sprintf("for example from %d to %d: %s", l.From, l.To, l.why)
		}
	}
	return ""
}
