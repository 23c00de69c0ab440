package proctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Again is the running test binary, to be started once more with these
// variables. What it prints goes to a file: see Finish.
func Again(tb testing.TB, env ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), Self(tb))
	cmd.Env = append(os.Environ(), env...)
	out, err := os.Create(filepath.Join(tb.TempDir(), "out"))
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd
}

// Finish waits for a process of Again, and returns what it has printed.
func Finish(tb testing.TB, cmd *exec.Cmd) (string, error) {
	tb.Helper()
	ended := cmd.Wait()
	file := cmd.Stdout.(*os.File)
	text, err := os.ReadFile(file.Name())
	if err != nil {
		tb.Fatal(err)
	}
	if err := file.Close(); err != nil {
		tb.Fatal(err)
	}
	return string(text), ended
}
