package proctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Again returns a command that starts the running test binary with additional environment
// variables. Its output goes to a file; see Finish.
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

// Finish waits for a process of Again, and returns its output and its exit error.
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
