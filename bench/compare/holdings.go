package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// holdings are the resources of a rank's process, as the kernel reports them.
type holdings struct {
	rank        int
	files       int // mappings of memory files
	mappings    int // all mappings, including those of the program and its runtime
	descriptors int
	resident    int // KiB
}

// measureHoldings measures this process. Numbers that the system does not report
// are 0.
func measureHoldings(rank int) holdings {
	h := holdings{rank: rank}
	maps, _ := os.ReadFile("/proc/self/maps")
	h.mappings, h.files = strings.Count(string(maps), "\n"), strings.Count(string(maps), " /memfd:")
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		h.descriptors = len(list) - 1 // without that of the directory
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &h.resident) // other lines do not match
	}
	return h
}

// settledHoldings is measureHoldings when the number of descriptors has been
// constant for longer than the ranks take to connect to each other after Join.
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

// String returns that line.
func (h holdings) String() string {
	return fmt.Sprintf(holdingsFormat, h.rank, h.files, h.mappings, h.descriptors, h.resident)
}

// parseHoldings reads the ranks' holdings from a text with other lines.
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

// holdingsText returns the columns for the holdings: the median, and the maximum of
// a rank.
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
