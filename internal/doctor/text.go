package doctor

import (
	"fmt"
	"strings"

	"github.com/tutti-go/tutti/internal/cliflag"
)

// width is the maximal line length, in columns.
const width = 80

// Text formats the lines for people, with a summary at the end.
func Text(lines []Line, colored bool) string {
	var b strings.Builder
	counts := map[string]int{}
	column := 0
	for _, l := range lines {
		counts[l.Level]++
		column = max(column, len(l.Area))
	}
	indent := strings.Repeat(" ", 6+column+2)
	for _, l := range lines {
		level := fmt.Sprintf("%-6s", l.Level)
		if colored {
			level = map[string]string{OK: "\x1b[32m", Warn: "\x1b[33m", Fail: "\x1b[31m"}[l.Level] + level + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%s%-*s  %s\n", level, column, l.Area, cliflag.Wrap(l.What, indent, width))
		if l.Do != "" {
			fmt.Fprintf(&b, "%sdo: %s\n", indent, cliflag.Wrap(l.Do, indent+"    ", width))
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d warn, %d fail\n", counts[OK], counts[Warn], counts[Fail])
	return b.String()
}
