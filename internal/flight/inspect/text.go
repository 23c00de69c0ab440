package inspect

import (
	"bufio"
	"fmt"
	"io"
)

// Text writes what can be said of each communicator, the worst first: the first
// lines say what is wrong.
func Text(w io.Writer, comms []*Comm) error {
	b := bufio.NewWriter(w)
	for i, c := range comms {
		if i > 0 {
			fmt.Fprintln(b)
		}
		prefix := ""
		if len(comms) > 1 {
			prefix = c.Name + ": "
		}
		d := c.Diagnose()
		for _, f := range d.Findings {
			fmt.Fprintf(b, "%s%s\n", prefix, f.Text)
		}
		for _, line := range d.Details {
			fmt.Fprintf(b, "  %s\n", line)
		}
	}
	return b.Flush()
}
