//go:build race

package kernel

import (
	"runtime"
	"unsafe"
)

// The race detector does not see assembly: the ranges are told to it.

func raceRead(p unsafe.Pointer, bytes int) {
	if bytes > 0 {
		runtime.RaceReadRange(p, bytes)
	}
}

func raceWrite(p unsafe.Pointer, bytes int) {
	if bytes > 0 {
		runtime.RaceWriteRange(p, bytes)
	}
}
