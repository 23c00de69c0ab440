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

Puts together what the ranks' flight recorders have left, and says who is
behind, who is missing and who disagrees. Ranks leave a file when their Comm is
poisoned, in the folder that Config.FlightDir or TUTTI_FLIGHT_DIR names;
Comm.Dump writes one at any time.

  tutti inspect dumps/                        who kept whom waiting, in words
  tutti inspect --html report.html dumps/     a page with pictures
  tutti inspect --trace trace.json dumps/*    for Perfetto or chrome://tracing

Exit codes: 0 the dumps were read, 1 they could not be, 2 wrong flags.

Flags:
`

// inspectDumps is tutti inspect.
func inspectDumps(args []string) int { return inspectTo(args, os.Stdout, os.Stderr) }

func inspectFlags(html, trace *string) *flag.FlagSet {
	f := flag.NewFlagSet("tutti inspect", flag.ContinueOnError)
	f.StringVar(html, "html", "", "write a page with pictures to this `file`")
	f.StringVar(trace, "trace", "", "write a trace for Perfetto or Chrome to this `file`")
	return f
}

func inspectTo(args []string, out, errs io.Writer) int {
	var html, trace string
	f := inspectFlags(&html, &trace)
	if code, done := readFlags(f, inspectHelp, args, out, errs); done {
		return code
	}
	if f.NArg() == 0 {
		return fault(f, errors.New("no files; tutti inspect -h explains"), errs)
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

// writeFile writes one form of the report, if it was asked for.
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
