package dl

import (
	"slices"
	"strings"
	"unsafe"
)

// A Library is an open library. It may be shared between goroutines.
type Library struct {
	path   string
	handle uintptr
}

// Path returns the candidate that was opened.
func (l *Library) Path() string { return l.path }

// Open opens the first of the candidates that the loader accepts. Library says
// what is looked for, and hint what a person can do when it is not there: both
// go into the error.
func Open(library, hint string, candidates ...string) (*Library, error) {
	e := &NotFoundError{Library: library, Hint: hint}
	for i, path := range candidates {
		if slices.Contains(candidates[:i], path) {
			continue
		}
		handle, err := open(path)
		if err == nil {
			return &Library{path: path, handle: handle}, nil
		}
		e.Tried = append(e.Tried, Attempt{Path: path, Reason: reason(path, err)})
	}
	return nil, e
}

// reason leaves out the path, with which the loader begins its messages.
func reason(path string, err error) string {
	return strings.TrimPrefix(err.Error(), path+": ")
}

// Func looks a function up; it is 0 if the library does not have it.
func (l *Library) Func(name string) Func {
	addr, err := symbol(l.handle, name)
	if err != nil {
		return 0
	}
	return Func(addr)
}

// A Func is the address of a C function that takes and returns integers and
// pointers only.
type Func uintptr

// Call calls the function and returns its first result register, of which a C
// int is the lower half. Arguments that point to Go memory must point into the
// heap, and the caller keeps them alive. Calls allocate nothing if args does not
// have to be made anew: see Frame.
func (f Func) Call(args []uintptr) uintptr { return call(uintptr(f), args) }

// A Frame is the arguments and small results of a call, to be reused: it lives
// on the heap, so that C may write to it. It may not be shared while it is in
// use.
type Frame struct {
	Args [12]uintptr
	Out  [4]uint64
}

// Call calls f with the first n of the frame's arguments.
func (fr *Frame) Call(f Func, n int) uintptr { return call(uintptr(f), fr.Args[:n]) }

// OutAddr returns the address of the i-th result, cleared, as an argument.
func (fr *Frame) OutAddr(i int) uintptr {
	fr.Out[i] = 0
	return uintptr(unsafe.Pointer(&fr.Out[i]))
}

// Pointer turns an address that C returned into a pointer. The memory must not
// be Go's.
func Pointer(addr uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}

// String copies a C string.
func String(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	p := Pointer(addr)
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// CString returns s with a zero byte behind it, for C to read while the slice
// is kept alive.
func CString(s string) []byte { return append([]byte(s), 0) }
