package proctest

import (
	"fmt"
	"math/rand/v2"
	"net"
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

// FreeAddr is an address that nobody listens on. Its port is not of those that
// the system gives to whoever asks for any: tests that run beside this one ask
// often, and one of them could get it before it is used.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	for tries := 1; ; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(22000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
		if tries == 100 {
			tb.Fatal(err)
		}
	}
}
