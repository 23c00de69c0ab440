package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// percentile returns the value that the given percentage of sorted values does not
// exceed.
func percentile(sorted []int64, percent int) int64 {
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// sortedMedian returns the median of sorted values.
func sortedMedian(sorted []int64) int64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func micro(ns int64) float64 { return float64(ns) / 1e3 }

// spread returns the range of values relative to their median. It ignores the first
// block, which is short and cold.
func spread(medians []int64) float64 {
	if len(medians) > 2 {
		medians = medians[1:]
	}
	if len(medians) < 2 {
		return 0
	}
	s := slices.Sorted(slices.Values(medians))
	return float64(s[len(s)-1]-s[0]) / float64(max(s[len(s)/2], 1))
}

// binOf returns the bin of a value between low and high, on a logarithmic scale.
func binOf(x, low, high float64) int {
	return min(max(int(bins*math.Log(x/low)/math.Log(high/low)), 0), bins-1)
}

// median returns the median.
func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(list))
	if len(s)%2 == 0 {
		return (s[len(s)/2-1] + s[len(s)/2]) / 2
	}
	return s[len(s)/2]
}

var units = []string{"", "K", "M", "G", "T"}

// byteText formats a number of bytes: 16M.
func byteText(n int) string {
	unit := 0
	for n >= 1024 && n%1024 == 0 && unit < len(units)-1 {
		n /= 1024
		unit++
	}
	return strconv.Itoa(n) + units[unit]
}

// parseBytes reads a number and a unit: 4, 64K, 16MB, 1.5GiB. Units are powers of 1024, in upper or
// lower case. A fraction of a byte, or more than 1 TiB, is an error.
func parseBytes(text string) (int, error) {
	t := strings.ToUpper(strings.TrimSpace(text))
	t, binary := strings.CutSuffix(t, "IB")
	if !binary {
		t = strings.TrimSuffix(t, "B")
	}
	shift := 0
	for i, u := range units[1:] {
		if rest, ok := strings.CutSuffix(t, u); ok {
			t, shift = rest, 10*(i+1)
			break
		}
	}
	n, err := strconv.ParseFloat(t, 64)
	bytes := n * float64(int64(1)<<shift)
	if err != nil || binary && shift == 0 || bytes < 0 || bytes != math.Trunc(bytes) || bytes > 1<<40 {
		return 0, fmt.Errorf("%q is not a number of bytes such as 64K or 16M", text)
	}
	return int(bytes), nil
}

// shortNumber formats a number with about four digits.
func shortNumber(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 10:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 1000:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 0, 64)
}
