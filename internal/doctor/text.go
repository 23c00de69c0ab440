package doctor

import (
	"fmt"
	"strings"

	"github.com/tutti-go/tutti/internal/usage"
)

// width is how long a line of text becomes at most.
const width = 80

// Text is the lines for a person, and one line of verdict.
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
		fmt.Fprintf(&b, "%s%-*s  %s\n", level, column, l.Area, usage.Wrap(l.What, indent, width))
		if l.Do != "" {
			fmt.Fprintf(&b, "%sdo: %s\n", indent, usage.Wrap(l.Do, indent+"    ", width))
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d warn, %d fail\n", counts[OK], counts[Warn], counts[Fail])
	return b.String()
}
