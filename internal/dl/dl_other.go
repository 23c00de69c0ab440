//go:build !(linux && (amd64 || arm64))

package dl

func open(string) (uintptr, error) { return 0, ErrUnsupported }

func symbol(uintptr, string) (uintptr, error) { return 0, ErrUnsupported }

// run is never reached: there is no Func where no library can be opened.
func (b *block) run() {}

// Bind does nothing here: there is no Func where no library can be opened.
func Bind(any, Func) {}
