// Tutti is the command of the tutti library: `tutti bench` measures and checks
// collectives, `tutti doctor` looks at the machine, `tutti run` starts the ranks of
// a job; `tutti help` lists what there is.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/place"
)

// An app is this program; its fields are for tests.
type app struct {
	// damage spoils results of tutti bench before they are checked.
	damage func(rank int, what string, dst []byte)
	// slow keeps a rank of tutti bench before every operation.
	slow func(rank int)
}

// A command is one word after tutti.
type command struct {
	name, about string // without an about it is not listed
	run         func(a app, args []string) int
	flags       func() *flag.FlagSet // for completion; nil: none
	words       []string             // that may follow
}

func commands() []command {
	return []command{
		{
			"bench", "measure collectives here or on a cluster, and check them", runBench,
			func() *flag.FlagSet { return bench.NewFlags(new(bench.Options)) }, nil,
		},
		{
			"doctor", "look at this machine, and say what to do about it", runDoctor,
			func() *flag.FlagSet { return doctorFlags(new(bool)) }, nil,
		},
		{
			"run", "start the ranks of a job on this host, and end them together",
			func(_ app, args []string) int { return run(args) },
			func() *flag.FlagSet { return runFlags(new(options), place.Hosts{}, os.Getenv) }, nil,
		},
		{
			"inspect", "say from the ranks' dumps who kept whom waiting",
			func(_ app, args []string) int { return inspectDumps(args) },
			func() *flag.FlagSet { return inspectFlags(new(string), new(string)) }, nil,
		},
		{
			"version", "say what this program was built from", runVersion,
			func() *flag.FlagSet { return versionFlags(new(bool)) }, nil,
		},
		{"completion", "print a script that completes words in bash, zsh or fish", runCompletion, nil, shells},
		{"probe", "", runProbe, nil, nil},
		{"complete", "", runComplete, nil, nil},
	}
}

func main() {
	if code, was := watchdog(); was {
		os.Exit(code)
	}
	os.Exit(dispatch(os.Args[1:]))
}

func dispatch(args []string) int { return app{}.dispatch(args) }

func (a app) dispatch(args []string) int {
	if len(args) == 0 {
		overview(os.Stderr)
		return 2
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(a, args[1:])
		}
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		if len(args) > 1 && args[0] == "help" {
			return a.help(args[1])
		}
		overview(os.Stdout)
		return 0
	case "-version", "--version":
		return runVersion(a, nil)
	}
	fmt.Fprintf(os.Stderr, "tutti: there is no command %q; tutti help lists them\n", args[0])
	return 2
}

// help explains a command.
func (a app) help(name string) int {
	if name == "help" {
		overview(os.Stdout)
		return 0
	}
	for _, c := range commands() {
		if c.name == name && c.about != "" {
			return c.run(a, []string{"-h"})
		}
	}
	fmt.Fprintf(os.Stderr, "tutti help: there is no command %q; tutti help lists them\n", name)
	return 2
}

const examples = `
Examples:
  tutti doctor                            is this machine well?
  tutti bench                             how fast is it, and is it right?
  tutti bench --pairs --html report.html  a page with charts; slow links
  tutti run -n 4 -- ./prog                start four ranks of a program
  tutti inspect dumps/                    who kept whom waiting?

Exit codes: 0 all is well, 1 it failed, 2 the words or flags are wrong; bench
also 3 if a result was wrong; run that of the first rank that failed; 128 and
the signal if it was stopped by one. Errors are one line on standard error.
Manual: docs/bench.md, docs/doctor.md, docs/run.md.
`

// overview lists the commands.
func overview(w io.Writer) {
	fmt.Fprintln(w, "tutti is collective communication for Go.\n\nCommands (tutti help COMMAND explains each):")
	for _, c := range commands() {
		if c.about != "" {
			fmt.Fprintf(w, "  tutti %-11s %s\n", c.name, c.about)
		}
	}
	fmt.Fprint(w, examples)
}
