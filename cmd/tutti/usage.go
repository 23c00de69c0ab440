package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tutti-go/tutti/internal/usage"
)

// readFlags reads a command's flags. If it is done with that, with code: help was
// asked for and printed, or a flag is wrong and an error was.
func readFlags(f *flag.FlagSet, help string, args []string, out, errs io.Writer) (code int, done bool) {
	if err := usage.Parse(f, args); err != nil {
		return ended(f, help, err, out, errs), true
	}
	return 0, false
}

// ended is the code of a command whose flags ended it.
func ended(f *flag.FlagSet, help string, err error, out, errs io.Writer) int {
	if !errors.Is(err, flag.ErrHelp) {
		return fault(f, err, errs)
	}
	if err := usage.Print(out, help, f); err != nil {
		return 1
	}
	return 0
}

// printed is the code of a command that has said all that it had to say, unless that
// went wrong.
func printed(f *flag.FlagSet, err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", f.Name(), err)
		return 1
	}
	return 0
}

// fault prints what is wrong with the words or flags of a command.
func fault(f *flag.FlagSet, err error, errs io.Writer) int {
	fmt.Fprintf(errs, "%s: %v\n", f.Name(), err)
	return 2
}
