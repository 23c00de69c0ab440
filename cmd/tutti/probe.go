package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// probeTime is how long a look at libraries may take.
const probeTime = 30 * time.Second

// probeMark stands before what a probe has found: libraries print, too.
const probeMark = "tutti-probe "

// probe has another process look at something, and returns what it found, as JSON.
// That process may crash or hang; this one does not.
func probe(ctx context.Context, what string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "probe", what)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	for line := range bytes.Lines(out.Bytes()) {
		if text, ok := bytes.CutPrefix(line, []byte(probeMark)); ok {
			return text, nil
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("loading the libraries did not end within %v", probeTime)
	case err == nil:
		err = errors.New("the process that loaded the libraries said nothing")
	default:
		err = fmt.Errorf("the process that loaded the libraries has died: %w%s", err, lastWords(stderr.String()))
	}
	return nil, err
}

// lastWords is the first line of what a process has said at its end.
func lastWords(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line == "" {
		return ""
	}
	return ": " + line
}

// runProbe is that other process.
func runProbe(_ app, args []string) int {
	if len(args) != 1 || args[0] != "gpu" {
		fmt.Fprintln(os.Stderr, "tutti probe: it is called by tutti itself")
		return 2
	}
	text, err := json.Marshal(lookForGPUs())
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutti probe:", err)
		return 1
	}
	fmt.Printf("%s%s\n", probeMark, text)
	return 0
}
