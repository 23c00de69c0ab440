//go:build race

package race

import (
	"runtime"
	"unsafe"
)

// Enabled reports whether the program is built with the race detector.
const Enabled = true

// ReadRange reports that n bytes at p are read.
func ReadRange(p unsafe.Pointer, n int) {
	if n > 0 {
		runtime.RaceReadRange(p, n)
	}
}

// WriteRange reports that n bytes at p are written.
func WriteRange(p unsafe.Pointer, n int) {
	if n > 0 {
		runtime.RaceWriteRange(p, n)
	}
}
