package main

import (
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

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
	for _, name := range []string{"bench", "doctor", "version", "completion"} {
		if got := tuttiWith(t, nil, "help", name); got.code != 0 || !strings.HasPrefix(got.out, "Usage: tutti "+name) || got.err != "" {
			t.Errorf("help %s: code %d, %s%s", name, got.code, got.out, got.err)
		}
	}
	for _, args := range [][]string{{}, {"gossip"}, {"help", "gossip"}, {"version", "x"}, {"completion", "csh"}, {"doctor", "-x"}, {"probe"}} {
		if got := tuttiWith(t, nil, args...); got.code != 2 || got.err == "" || got.out != "" {
			t.Errorf("%v: code %d, %q %q", args, got.code, got.out, got.err)
		}
	}
}

func TestVersion(t *testing.T) {
	got := tuttiWith(t, nil, "version")
	if got.code != 0 || !strings.HasPrefix(got.out, "tutti ") || !strings.Contains(got.out, "go1.") {
		t.Errorf("%+v", got)
	}
	text := versionText(&debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.time", Value: "2026-11-15T10:00:00Z"}, {Key: "vcs.modified", Value: "true"},
		},
	})
	if !strings.HasPrefix(text, "tutti v1.2.3\ncommit 0123abcd, 2026-11-15T10:00:00Z, with changes\n") {
		t.Error(text)
	}
}

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
		// The shell itself has the last word on its script.
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
