//go:build amd64 || arm64

package dl

import "unsafe"

// cgocall calls C on the thread's own stack. Without cgo, purego, which this package imports,
// prepares the runtime for it. purego's own calls are slower and run one at a time. C does
// not keep arg after it returns. arg may be on the goroutine's stack, which does not move
// during the call: cgo relies on that too.
//
//go:noescape
//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// callsABI0 is the address of the assembly function calls, which makes a block's calls.
var callsABI0 uintptr

// run makes the block's calls.
func (b *block) run() { cgocall(callsABI0, unsafe.Pointer(b)) }
