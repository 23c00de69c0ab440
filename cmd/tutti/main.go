// Tutti is the command of the tutti library. `tutti run` starts the ranks of a
// job; `tutti help` lists what there is.
package main

import (
	"fmt"
	"io"
	"os"
)

// An app is this program; its fields are for tests.
type app struct {
	// damage spoils results of tutti bench before they are checked.
	damage func(rank int, what string, dst []byte)
}

// A command is one word after tutti.
type command struct {
	name, about string // without an about it is not listed
	run         func(a app, args []string) int
}

func commands() []command {
	return []command{
		{"bench", "measure collectives on this machine or a cluster, and check them", runBench},
		{"doctor", "look at this machine as the library would, and say what to do", runDoctor},
		{"run", "start the ranks of a job on this host, and end them together", func(_ app, args []string) int { return run(args) }},
		{"probe", "", runProbe},
	}
}

func main() { os.Exit(dispatch(os.Args[1:])) }

func dispatch(args []string) int { return app{}.dispatch(args) }

func (a app) dispatch(args []string) int {
	if len(args) == 0 {
		usage(os.Stderr)
		return 2
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(a, args[1:])
		}
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(os.Stdout)
		return 0
	}
	fmt.Fprintf(os.Stderr, "tutti: there is no command %q; tutti help lists them\n", args[0])
	return 2
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "tutti is collective communication for Go.\n\nCommands (each explains itself with -h):")
	for _, c := range commands() {
		if c.about == "" {
			continue
		}
		fmt.Fprintf(w, "  tutti %-8s %s\n", c.name, c.about)
	}
}
