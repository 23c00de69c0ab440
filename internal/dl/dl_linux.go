//go:build amd64 || arm64

package dl

import "github.com/ebitengine/purego"

// open opens a library. It resolves all symbols at once, so that an unusable library fails
// here, and does not make its symbols visible to other libraries.
func open(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// symbol returns the address of a symbol.
func symbol(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }

// Bind makes *fptr, a variable of a func type, call f. Such calls are slow and allocate. Bind
// is for what Call cannot do, such as passing a struct by value.
func Bind(fptr any, f Func) { purego.RegisterFunc(fptr, uintptr(f)) }
