//go:build !(linux && (amd64 || arm64))

package dl

func open(string) (uintptr, error) { return 0, ErrUnsupported }

func symbol(uintptr, string) (uintptr, error) { return 0, ErrUnsupported }

// call is never reached: there is no Func where no library can be opened.
func call(uintptr, []uintptr) uintptr { return 0 }

// Bind does nothing here: there is no Func where no library can be opened.
func Bind(any, Func) {}
