package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

const versionHelp = `Usage: tutti version [--json]

Prints the version, commit and Go version of this program, and whether it can
use GPUs.

  tutti version
  tutti version --json   one object: version, commit, time, changed, go, system,
                         gpus

Exit codes: 0, or 2 for wrong flags.

Flags:
`

// A build describes the source of this program. Its JSON field names are stable.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`  // "" if the build does not record it
	Time    string `json:"time"`    // of the commit
	Changed bool   `json:"changed"` // the source has uncommitted changes
	Go      string `json:"go"`
	System  string `json:"system"`
	GPUs    bool   `json:"gpus"` // the program can load the GPU libraries
}

func versionFlags(asJSON *bool) *flag.FlagSet {
	f := flag.NewFlagSet("tutti version", flag.ContinueOnError)
	f.BoolVar(asJSON, "json", false, "print one JSON object")
	return f
}

// runVersion is the command tutti version.
func runVersion(_ app, args []string) int {
	var asJSON bool
	f := versionFlags(&asJSON)
	if code, done := readFlags(f, versionHelp, args, os.Stdout, os.Stderr); done {
		return code
	}
	if f.NArg() > 0 {
		return usageError(f, fmt.Errorf("%q is not a flag", f.Arg(0)), os.Stderr)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	b := newBuild(info)
	if !asJSON {
		_, err := fmt.Print(b.text())
		return printError(f, err)
	}
	return printError(f, json.NewEncoder(os.Stdout).Encode(b))
}

func newBuild(info *debug.BuildInfo) build {
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	b := build{
		Version: info.Main.Version, Commit: set["vcs.revision"], Time: set["vcs.time"], Changed: set["vcs.modified"] == "true",
		Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, GPUs: hasGPU,
	}
	if b.Version == "" {
		b.Version = "(unknown)"
	}
	return b
}

// text formats b for people.
func (b build) text() string {
	var t strings.Builder
	fmt.Fprintf(&t, "tutti %s\n", b.Version)
	if b.Commit != "" {
		fmt.Fprintf(&t, "commit %s, %s", b.Commit, b.Time)
		if b.Changed {
			t.WriteString(", with changes")
		}
		t.WriteString("\n")
	}
	gpus := "with GPUs"
	if !b.GPUs {
		gpus = "without GPUs"
	}
	fmt.Fprintf(&t, "%s %s, %s\n", b.Go, b.System, gpus)
	return t.String()
}
