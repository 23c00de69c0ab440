//go:build amd64 || arm64

package dl

import "unsafe"

// cgocall is what C is called by: purego, which this package imports, prepares
// the runtime for it where there is no cgo. Going through purego's own way would
// cost three times as much, and could make one call at a time.
//
//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// stepsABI0 is the address of the assembly that makes a block's calls.
var stepsABI0 uintptr

// run makes the calls.
func (b *block) run() { cgocall(stepsABI0, unsafe.Pointer(b)) }
