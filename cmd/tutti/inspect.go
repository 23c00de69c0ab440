package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tutti-go/tutti/internal/flight/inspect"
)

const inspectHelp = `Usage: tutti inspect [flags] files or folders...

Reads the ranks' flight dumps and names the ranks that are behind, missing, or
in another operation. A rank writes a dump when its Comm fails, to the folder in
Config.FlightDir or TUTTI_FLIGHT_DIR; Comm.Dump writes one at any time.

  tutti inspect dumps/                        the diagnosis as text
  tutti inspect --html report.html dumps/     a page with charts
  tutti inspect --trace trace.json dumps/*    for Perfetto or chrome://tracing

Exit codes: 0 the dumps were read, 1 a dump could not be read, 2 wrong flags.

Flags:
`

// inspectDumps is the command tutti inspect.
func inspectDumps(args []string) int { return inspectTo(args, os.Stdout, os.Stderr) }

func inspectFlags(html, trace *string) *flag.FlagSet {
	f := flag.NewFlagSet("tutti inspect", flag.ContinueOnError)
	f.StringVar(html, "html", "", "write a page with charts to this `file`")
	f.StringVar(trace, "trace", "", "write a trace for Perfetto or Chrome to this `file`")
	return f
}

// inspectTo is inspectDumps with other outputs. It returns the exit code. If one of the reports
// cannot be written, the others still are.
func inspectTo(args []string, out, errs io.Writer) int {
	var html, trace string
	f := inspectFlags(&html, &trace)
	if code, done := readFlags(f, inspectHelp, args, out, errs); done {
		return code
	}
	if f.NArg() == 0 {
		return usageError(f, errors.New("no files; see tutti inspect -h"), errs)
	}
	dumps, err := inspect.Read(f.Args())
	if err == nil {
		comms := inspect.Comms(dumps)
		err = errors.Join(
			inspect.Text(out, comms),
			writeFile(html, comms, inspect.Page),
			writeFile(trace, comms, inspect.Trace),
		)
	}
	if err != nil {
		fmt.Fprintln(errs, "tutti inspect:", err)
		return 1
	}
	return 0
}

// writeFile writes one form of the report to a file. An empty name writes nothing.
func writeFile(name string, comms []*inspect.Comm, write func(io.Writer, []*inspect.Comm) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f, comms), f.Close())
}
