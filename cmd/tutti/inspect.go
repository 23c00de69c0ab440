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
	f.SetOutput(errs)
	f.Usage = func() {
		fmt.Fprint(errs, inspectHelp)
		f.PrintDefaults()
	}
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if f.NArg() == 0 {
		fmt.Fprintln(errs, "tutti inspect: no files; tutti inspect -h explains")
		return 2
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
