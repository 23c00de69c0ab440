package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// holdings is what a rank's process holds, as the kernel knows it.
type holdings struct {
	rank        int
	files       int // mappings of memory files
	mappings    int // all of them, those of the program and of its runtime included
	descriptors int
	resident    int // KiB
}

// measureHoldings looks at this process. Where the system does not say, the numbers are 0.
func measureHoldings(rank int) holdings {
	h := holdings{rank: rank}
	maps, _ := os.ReadFile("/proc/self/maps")
	h.mappings, h.files = strings.Count(string(maps), "\n"), strings.Count(string(maps), " /memfd:")
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		h.descriptors = len(list) - 1 // that of the directory
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &h.resident) // most lines are others
	}
	return h
}

// settledHoldings is measureHoldings when the descriptors have not changed for longer than the ranks
// take to connect to each other, which they do after they have joined.
func settledHoldings(rank, size int) holdings {
	h := measureHoldings(rank)
	for since := time.Now(); time.Since(since) < time.Second+8*time.Duration(size)*time.Millisecond; time.Sleep(50 * time.Millisecond) {
		if now := measureHoldings(rank); now.descriptors != h.descriptors {
			h, since = now, time.Now()
		}
	}
	return measureHoldings(rank)
}

// holdingsFormat is the line that parseHoldings reads.
const holdingsFormat = "holds rank %d files %d mappings %d descriptors %d resident %d"

// String is that line.
func (h holdings) String() string {
	return fmt.Sprintf(holdingsFormat, h.rank, h.files, h.mappings, h.descriptors, h.resident)
}

// parseHoldings finds what ranks said among other lines.
func parseHoldings(text string) (list []holdings) {
	for line := range strings.Lines(text) {
		var h holdings
		if _, said, ok := strings.Cut(line, "holds "); ok {
			if _, err := fmt.Sscanf("holds "+said, holdingsFormat, &h.rank, &h.files, &h.mappings, &h.descriptors, &h.resident); err == nil {
				list = append(list, h)
			}
		}
	}
	return list
}

// heldText is the columns of what ranks hold: the median, and the most of one rank.
func holdingsText(list []holdings) string {
	column := func(of func(h holdings) int) string {
		var all []int
		for _, h := range list {
			all = append(all, of(h))
		}
		if len(all) == 0 || slices.Max(all) == 0 {
			return "-"
		}
		slices.Sort(all)
		return fmt.Sprintf("%d (%d)", all[len(all)/2], all[len(all)-1])
	}
	return strings.Join([]string{
		column(func(h holdings) int { return h.files }),
		column(func(h holdings) int { return h.mappings }),
		column(func(h holdings) int { return h.descriptors }),
		column(func(h holdings) int { return h.resident >> 10 }),
	}, " | ")
}
