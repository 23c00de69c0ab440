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

Says what this program was built from: version, commit, Go, and whether it can
use GPUs.

  tutti version
  tutti version --json   one object: version, commit, time, changed, go, system,
                         gpus

Exit codes: 0, or 2 for wrong flags.

Flags:
`

// A build is what this program was built from; as JSON, its names are a promise.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`  // "" if the build does not say
	Time    string `json:"time"`    // of the commit
	Changed bool   `json:"changed"` // since the commit
	Go      string `json:"go"`
	System  string `json:"system"`
	GPUs    bool   `json:"gpus"` // it can load the libraries of GPUs
}

func versionFlags(asJSON *bool) *flag.FlagSet {
	f := flag.NewFlagSet("tutti version", flag.ContinueOnError)
	f.BoolVar(asJSON, "json", false, "print one JSON object")
	return f
}

// runVersion is tutti version.
func runVersion(_ app, args []string) int {
	var asJSON bool
	f := versionFlags(&asJSON)
	if code, done := readFlags(f, versionHelp, args, os.Stdout, os.Stderr); done {
		return code
	}
	if f.NArg() > 0 {
		return fault(f, fmt.Errorf("%q is not a flag", f.Arg(0)), os.Stderr)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	b := buildOf(info)
	if !asJSON {
		_, err := fmt.Print(b.text())
		return printed(f, err)
	}
	return printed(f, json.NewEncoder(os.Stdout).Encode(b))
}

func buildOf(info *debug.BuildInfo) build {
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

// text is for a person.
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
