package job

import (
	"errors"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
)

// TestOptions checks the error for the first option that differs between ranks; equal options are none.
func TestOptions(t *testing.T) {
	set := func(pairs ...string) rankInfo {
		c := rankInfo{}
		for i := 0; i < len(pairs); i += 2 {
			if c.options == nil {
				c.options = make(map[string]string)
			}
			c.options[pairs[i]] = pairs[i+1]
		}
		return c
	}
	for want, peers := range map[string][]rankInfo{
		"": {set(), set()},
		"b is 1 on rank 0, and 2 on rank 2; all ranks must have the same":         {set("a", "x", "b", "1"), set("a", "x", "b", "1"), set("a", "x", "b", "2")},
		"a is set on rank 0, and not set on rank 1; all ranks must have the same": {set("a", "set"), set()},
		"a is not set on rank 0, and set on rank 1; all ranks must have the same": {set(), set("a", "set", "b", "set")},
	} {
		err := checkOptions(peers)
		if want == "" && err == nil {
			continue
		}
		if err == nil || err.Error() != want || !errors.Is(err, engine.ErrMismatch) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
