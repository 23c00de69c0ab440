// Tutti is the command of the tutti library: `tutti bench` measures and checks
// collectives, `tutti doctor` checks the machine, `tutti run` starts the ranks of a
// job. `tutti help` lists all commands.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/launchenv"
)

// An app is this program. Tests set its fields.
type app struct {
	// damage corrupts results of tutti bench before they are checked.
	damage func(rank int, what string, dst []byte)
	// slow delays a rank of tutti bench before every operation.
	slow func(rank int)
}

// A command is a subcommand of tutti.
type command struct {
	name, summary string // an empty summary hides the command
	run           func(a app, args []string) int
	flags         func() *flag.FlagSet // for completion; nil: none
	args          []string             // possible arguments, for completion
}

func commands() []command {
	return []command{
		{
			"bench", "measure collectives on this host or a cluster, and check results", runBench,
			func() *flag.FlagSet { return bench.NewFlags(new(bench.Options)) }, nil,
		},
		{
			"doctor", "check this machine, and suggest fixes", runDoctor,
			func() *flag.FlagSet { return doctorFlags(new(bool)) }, nil,
		},
		{
			"run", "start the ranks of a job on this host, and end them together",
			func(_ app, args []string) int { return run(args) },
			func() *flag.FlagSet { return runFlags(new(options), launchenv.Hosts{}, os.Getenv) }, nil,
		},
		{
			"inspect", "find in the ranks' dumps who kept the others waiting",
			func(_ app, args []string) int { return inspectDumps(args) },
			func() *flag.FlagSet { return inspectFlags(new(string), new(string)) }, nil,
		},
		{
			"version", "print the version of this program", runVersion,
			func() *flag.FlagSet { return versionFlags(new(bool)) }, nil,
		},
		{"completion", "print a script that completes words in bash, zsh or fish", runCompletion, nil, shells},
		{"probe", "", runProbe, nil, nil},
		{"complete", "", runComplete, nil, nil},
	}
}

func main() {
	if code, was := runWatchdog(); was {
		os.Exit(code)
	}
	os.Exit(dispatch(os.Args[1:]))
}

func dispatch(args []string) int { return app{}.dispatch(args) }

// dispatch runs the command that args name and returns the exit code; 2 if there is no such
// command.
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

// help prints the help of a command.
func (a app) help(name string) int {
	if name == "help" {
		overview(os.Stdout)
		return 0
	}
	for _, c := range commands() {
		if c.name == name && c.summary != "" {
			return c.run(a, []string{"-h"})
		}
	}
	fmt.Fprintf(os.Stderr, "tutti help: there is no command %q; tutti help lists them\n", name)
	return 2
}

const examples = `
Examples:
  tutti doctor                            check this machine
  tutti bench                             measure and check the collectives
  tutti bench --pairs --html report.html  a page with charts; find slow links
  tutti run -n 4 -- ./prog                start four ranks of a program
  tutti inspect dumps/                    which rank kept the others waiting

Exit codes: 0 success, 1 failure, 2 wrong arguments; bench: 3 if a result was
wrong; run: the code of the first rank that failed; 128 plus the signal number
if stopped by a signal. Errors are one line on standard error.
Manual: docs/guide/measuring.md, docs/guide/deploying.md.
`

// overview lists the commands.
func overview(w io.Writer) {
	fmt.Fprintln(w, "tutti is collective communication for Go.\n\nCommands (tutti help COMMAND explains each):")
	for _, c := range commands() {
		if c.summary != "" {
			fmt.Fprintf(w, "  tutti %-11s %s\n", c.name, c.summary)
		}
	}
	fmt.Fprint(w, examples)
}
