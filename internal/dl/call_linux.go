//go:build amd64 || arm64

package dl

import "unsafe"

// cgocall is what C is called by: purego, which this package imports, prepares
// the runtime for it where there is no cgo. Going through purego's own way would
// cost three times as much, and could make one call at a time. Nothing keeps arg
// when it returns, and a goroutine's stack does not move meanwhile: cgo's own
// arguments are there, too.
//
//go:noescape
//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// callsABI0 is the address of the assembly that makes a block's calls.
var callsABI0 uintptr

// run makes the calls.
func (b *block) run() { cgocall(callsABI0, unsafe.Pointer(b)) }
