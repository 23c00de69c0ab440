package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tutti-go/tutti/internal/cliflag"
)

// readFlags parses a command's flags. done means that the command ends with code: it
// has printed its help or an error.
func readFlags(f *flag.FlagSet, help string, args []string, out, errs io.Writer) (code int, done bool) {
	if err := cliflag.Parse(f, args); err != nil {
		return helpOrError(f, help, err, out, errs), true
	}
	return 0, false
}

// helpOrError prints the help or the error of a command whose flags end it, and returns
// the exit code.
func helpOrError(f *flag.FlagSet, help string, err error, out, errs io.Writer) int {
	if !errors.Is(err, flag.ErrHelp) {
		return usageError(f, err, errs)
	}
	if err := cliflag.Print(out, help, f); err != nil {
		return 1
	}
	return 0
}

// printError prints a write error and returns the exit code.
func printError(f *flag.FlagSet, err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", f.Name(), err)
		return 1
	}
	return 0
}

// usageError prints a mistake in the arguments of a command and returns the exit code.
func usageError(f *flag.FlagSet, err error, errs io.Writer) int {
	fmt.Fprintf(errs, "%s: %v\n", f.Name(), err)
	return 2
}
