package proctest

import (
	"os"
	"testing"

	"github.com/tutti-go/tutti/internal/envvar"
)

// Heavy reports whether TUTTI_TEST_HEAVY asks for the long form of a test.
func Heavy(tb testing.TB) bool {
	tb.Helper()
	heavy, err := envvar.Bool(os.Getenv, "TUTTI_TEST_HEAVY")
	if err != nil {
		tb.Fatal(err)
	}
	return heavy
}
