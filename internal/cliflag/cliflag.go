// Package cliflag parses the flags of commands and prints their help. Help goes to
// standard output, and a mistake is one line.
package cliflag

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// width is the maximal line length of help, in columns.
const width = 80

// Parse parses flags and prints nothing. The error is flag.ErrHelp if help is
// requested. Otherwise it is one line without the command's name.
func Parse(f *flag.FlagSet, args []string) error {
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	err := f.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		return fmt.Errorf("there is no flag %s; %s -h lists them", Dashed(name), f.Name())
	}
	return fmt.Errorf("%w; see %s -h", err, f.Name())
}

// Print writes a command's help, followed by its flags.
func Print(out io.Writer, help string, f *flag.FlagSet) error {
	var b strings.Builder
	b.WriteString(help)
	f.VisitAll(func(g *flag.Flag) {
		value, text := flag.UnquoteUsage(g)
		fmt.Fprintf(&b, "  %s", Dashed(g.Name))
		if value != "" {
			b.WriteString(" " + value)
		}
		if d := g.DefValue; d != "" && d != "0" && d != "false" && d != "0s" && !strings.Contains(text, "(default") {
			text += " (default " + d + ")"
		}
		const indent = "        "
		b.WriteString("\n" + indent + Wrap(text, indent, width) + "\n")
	})
	_, err := io.WriteString(out, b.String())
	return err
}

// Dashed returns a flag as the user types it: one dash before a single letter,
// otherwise two.
func Dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// Wrap breaks text into lines of at most width columns. All lines but the first are
// indented. The caller prints an equal indent before the first.
func Wrap(text, indent string, width int) string {
	var b strings.Builder
	column := len(indent)
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
