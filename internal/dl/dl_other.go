//go:build !(linux && (amd64 || arm64))

package dl

func open(string) (uintptr, error) { return 0, ErrUnsupported }

func symbol(uintptr, string) (uintptr, error) { return 0, ErrUnsupported }

// run is never called: no library can be opened here, so there is no Func.
func (b *block) run() {}

// Bind does nothing: no library can be opened here, so there is no Func.
func Bind(any, Func) {}
