package inspect

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Text writes a report about each communicator, in order of severity. The first
// lines name the problem.
func Text(w io.Writer, comms []*Comm) error {
	b := bufio.NewWriter(w)
	for i, c := range comms {
		if i > 0 {
			fmt.Fprintln(b)
		}
		prefix := ""
		if len(comms) > 1 {
			prefix = printable(c.Name) + ": "
		}
		d := c.Diagnose()
		for _, f := range d.Findings {
			fmt.Fprintf(b, "%s%s\n", prefix, printable(f.Text))
		}
		for _, line := range d.Details {
			fmt.Fprintf(b, "  %s\n", printable(line))
		}
	}
	return b.Flush()
}

// printable replaces control characters. Names and texts in a dump may come from an
// untrusted source, and a terminal interprets them.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
