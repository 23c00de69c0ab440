//go:build amd64 || arm64

package dl

import "github.com/ebitengine/purego"

// open resolves all symbols at once, so that an unusable library is refused
// here, and keeps them to itself.
func open(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func symbol(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }

// Bind makes *fptr, a pointer to a variable of a func type, call f. Such calls
// are slow and allocate; they are for what Call cannot do, such as passing a
// struct by value.
func Bind(fptr any, f Func) { purego.RegisterFunc(fptr, uintptr(f)) }
