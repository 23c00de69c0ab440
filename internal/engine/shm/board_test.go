package shm

import (
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// TestTail checks which data lies in the tail of a slot's header.
func TestInTail(t *testing.T) {
	for name, test := range map[string]struct {
		n    int64
		sig  engine.Sig
		want bool
	}{
		"nothing":            {0, engine.Sig{}, true},
		"six floats":         {6, engine.Sig{Type: kernel.Float32}, true},
		"seven floats":       {7, engine.Sig{Type: kernel.Float32}, false},
		"split":              {2, engine.Sig{Verb: engine.Split}, true},
		"more than a tail":   {4, engine.Sig{Verb: engine.Split}, false},
		"in its own buffers": {direct, engine.Sig{Type: kernel.Uint8}, false},
		"in windows":         {windowed, engine.Sig{Type: kernel.Uint8}, false},
	} {
		h := header{n: test.n, sig: test.sig}
		if got := h.inTail(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
