package main

import (
	"encoding/json"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// TestHelp checks the help of all commands, and that a mistake is one line on standard error with
// exit code 2.
func TestHelp(t *testing.T) {
	got := tuttiWith(t, nil, "help")
	for _, want := range []string{"tutti bench", "tutti doctor", "tutti run", "tutti version", "tutti completion", "Examples:", "Exit codes:"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("help does not say %q", want)
		}
	}
	if got.code != 0 || got.err != "" || strings.Contains(got.out, "probe") {
		t.Errorf("code %d, %s%s", got.code, got.out, got.err)
	}
	for _, name := range []string{"bench", "doctor", "run", "inspect", "version", "completion"} {
		for _, args := range [][]string{{"help", name}, {name, "-h"}, {name, "--help"}} {
			got := tuttiWith(t, nil, args...)
			if got.code != 0 || !strings.HasPrefix(got.out, "Usage: tutti "+name) || got.err != "" {
				t.Errorf("%v: code %d, %s%s", args, got.code, got.out, got.err)
			}
			for _, want := range []string{"\n  tutti " + name, "Exit codes:"} {
				if !strings.Contains(got.out, want) && (name != "completion" || want == "Exit codes:") {
					t.Errorf("%v does not say %q", args, want)
				}
			}
			for line := range strings.Lines(got.out) {
				if len(strings.TrimSuffix(line, "\n")) > 80 {
					t.Errorf("%v: %d columns: %s", args, len(line), line)
				}
			}
		}
	}
	// Mistakes are one line on standard error, which names the command.
	for _, line := range []string{
		"gossip", "help gossip", "version x", "version --x", "completion csh", "completion", "doctor -x", "doctor x", "probe", "bench --x", "bench x",
		"bench -n x", "run --x", "run", "run -n x -- true", "run --color blue -- true", "inspect", "inspect --x", "inspect --html",
	} {
		got := tuttiWith(t, nil, strings.Fields(line)...)
		name, _, _ := strings.Cut(line, " ")
		if got.code != 2 || got.out != "" || strings.Count(got.err, "\n") != 1 || !strings.HasPrefix(got.err, "tutti "+name+":") && !strings.HasPrefix(got.err, "tutti:") {
			t.Errorf("%v: code %d, %q %q", line, got.code, got.out, got.err)
		}
	}
	if got := tuttiWith(t, nil); got.code != 2 || got.err == "" || got.out != "" {
		t.Errorf("nothing: %+v", got)
	}
}

// TestVersion checks both forms of tutti version, and the text for a build with recorded changes.
func TestVersion(t *testing.T) {
	got := tuttiWith(t, nil, "version")
	if got.code != 0 || !strings.HasPrefix(got.out, "tutti ") || !strings.Contains(got.out, "go1.") {
		t.Errorf("%+v", got)
	}
	got = tuttiWith(t, nil, "version", "--json")
	var b build
	if err := json.Unmarshal([]byte(got.out), &b); err != nil || got.code != 0 || b.GPUs != hasGPU || !strings.HasPrefix(b.Go, "go1.") {
		t.Errorf("%v: %+v", err, got)
	}
	text := newBuild(&debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.time", Value: "2026-11-15T10:00:00Z"}, {Key: "vcs.modified", Value: "true"},
		},
	}).text()
	if !strings.HasPrefix(text, "tutti v1.2.3\ncommit 0123abcd, 2026-11-15T10:00:00Z, with changes\n") {
		t.Error(text)
	}
}

// TestCompletion checks candidates, and lets each shell that is installed check its script.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"":                       "bench completion doctor help inspect run version",
		"b":                      "bench",
		"help do":                "doctor",
		"bench --en":             "--engine",
		"bench --engine s":       "shm staged",
		"bench --op allreduce,b": "allreduce,barrier allreduce,broadcast",
		"bench --json --al":      "--alloc",
		"doctor -":               "--json",
		"run --color a":          "always auto",
		"run -n 4 -- -":          "",
		"bench --html r":         "",
		"completion ":            "bash fish zsh",
	} {
		got := complete(strings.Split(line, " "))
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %q", line, got)
		}
	}
	for _, shell := range shells {
		got := tuttiWith(t, nil, "completion", shell)
		if got.code != 0 || !strings.Contains(got.out, "tutti complete") {
			t.Errorf("%s: %+v", shell, got)
		}
		// The shell itself checks the script.
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("there is no %s to read its script", shell)
			continue
		}
		cmd := exec.Command(path, "-n")
		cmd.Stdin = strings.NewReader(got.out)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", shell, err, text)
		}
	}
}
