package proctest

import (
	"testing"

	"github.com/tutti-go/tutti/internal/freeaddr"
)

// FreeAddr returns a loopback address that is reserved until the test is complete. See
// freeaddr.Reserve.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	r, err := freeaddr.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Release)
	return r.Addr
}
