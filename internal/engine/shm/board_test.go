package shm

import (
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// TestInTail checks which data lies in the tail of a slot's header.
func TestInTail(t *testing.T) {
	for name, test := range map[string]struct {
		n    int64
		sig  engine.Fingerprint
		want bool
	}{
		"nothing":            {0, engine.Fingerprint{}, true},
		"six floats":         {6, engine.Fingerprint{Type: kernel.Float32}, true},
		"seven floats":       {7, engine.Fingerprint{Type: kernel.Float32}, false},
		"split":              {2, engine.Fingerprint{Verb: engine.Split}, true},
		"more than a tail":   {4, engine.Fingerprint{Verb: engine.Split}, false},
		"in its own buffers": {direct, engine.Fingerprint{Type: kernel.Uint8}, false},
		"in windows":         {windowed, engine.Fingerprint{Type: kernel.Uint8}, false},
	} {
		h := header{n: test.n, sig: test.sig}
		if got := h.inTail(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
