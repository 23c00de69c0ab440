package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// runVersion is tutti version.
func runVersion(_ app, args []string) int {
	if len(args) > 0 {
		if args[0] == "-h" || args[0] == "--help" {
			fmt.Println("Usage: tutti version\n\nSays what this program was built from: version, commit, Go, and whether it has GPUs.")
			return 0
		}
		fmt.Fprintf(os.Stderr, "tutti version: %q is not a flag\n", args[0])
		return 2
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	fmt.Print(versionText(info))
	return 0
}

// versionText is what a build says of itself.
func versionText(info *debug.BuildInfo) string {
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	var b strings.Builder
	version := info.Main.Version
	if version == "" {
		version = "(unknown)"
	}
	fmt.Fprintf(&b, "tutti %s\n", version)
	if rev := set["vcs.revision"]; rev != "" {
		fmt.Fprintf(&b, "commit %s, %s", rev, set["vcs.time"])
		if set["vcs.modified"] == "true" {
			b.WriteString(", with changes")
		}
		b.WriteString("\n")
	}
	gpus := "with GPUs"
	if !hasGPU {
		gpus = "without GPUs"
	}
	fmt.Fprintf(&b, "%s %s/%s, %s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, gpus)
	return b.String()
}
