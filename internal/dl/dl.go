package dl

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A Library is an open library. It may be shared between goroutines.
type Library struct {
	path   string
	handle uintptr
}

// Path returns the path or name with which the library was opened.
func (l *Library) Path() string { return l.path }

// Open opens the first candidate that the dynamic loader accepts. library names the library
// and hint says what the user can do if it is missing; both are only for the error.
func Open(library, hint string, candidates ...string) (*Library, error) {
	e := &NotFoundError{Library: library, Hint: hint}
	for i, path := range candidates {
		if slices.Contains(candidates[:i], path) {
			continue
		}
		handle, err := onThread(func() (uintptr, error) { return open(path) })
		if err == nil {
			return &Library{path: path, handle: handle}, nil
		}
		e.Tried = append(e.Tried, Attempt{Path: path, Reason: reason(path, err)})
	}
	return nil, e
}

// onThread calls f with the goroutine locked to its thread, because dlerror is per thread.
func onThread(f func() (uintptr, error)) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return f()
}

// reason returns the loader's message without the path that it begins with.
func reason(path string, err error) string {
	return strings.TrimPrefix(err.Error(), path+": ")
}

// Func looks up a function. The result is 0 if the library does not have it.
func (l *Library) Func(name string) Func {
	addr, err := onThread(func() (uintptr, error) { return symbol(l.handle, name) })
	if err != nil {
		return 0
	}
	return Func(addr)
}

// A Func is the address of a C function that takes and returns only integers and pointers.
// Calls return the first result register; a C int is its lower half.
type Func uintptr

// Args are the arguments of a call, in order. The function ignores the ones that it does not
// have.
type Args [12]uintptr

// A Call is a function with its arguments. The assembly depends on its size and layout.
type Call struct {
	Fn   Func
	Args Args
}

// A Bracket is a pair of calls around other calls, on the same thread: first Before(Arg),
// which must return zero, and at the end After(p), where p points to memory for a result that
// is not used. The assembly depends on its layout.
type Bracket struct {
	Before Func
	Arg    uintptr
	After  Func
}

// A block is a list of calls, and the bracket around them, that are made one after the other
// without returning to Go. The assembly depends on its layout.
type block struct {
	in        *Bracket       // nil: none
	call      *Call          // the next call
	remaining uintptr        // the number of calls that have not been made
	stop      *atomic.Uint32 // checked between two calls: not zero ends the block
	before    uintptr        // the result of Before
	result    uintptr        // the result of the last call that was made
	ignored   uintptr        // After may write to it
}

// CallIn calls f inside a bracket; nil means none. before is the result of Before: if it is
// not zero, neither f nor After was called. args may be on the stack, which does not move
// while C runs. No argument may point to the stack or to other Go memory; see Frame.
func CallIn(in *Bracket, f Func, args *Args) (before, result uintptr) {
	c := Call{f, *args}
	b := block{in: in, call: &c, remaining: 1}
	b.run()
	return b.before, b.result
}

// CallAll makes calls one after the other inside a bracket. It ends when a call returns a C
// int other than zero, or when stop is not zero after a call. made is the number of calls
// made, and result the last one's result; the rest is as in CallIn. CallAll is for calls of a
// few microseconds: returning to Go between them would cost cache misses.
func CallAll(in *Bracket, list []Call, stop *atomic.Uint32) (before, result uintptr, made int) {
	if len(list) == 0 {
		return 0, 0, 0
	}
	b := block{in: in, call: &list[0], remaining: uintptr(len(list)), stop: stop}
	b.run()
	return b.before, b.result, len(list) - int(b.remaining)
}

// A Frame holds the results that C writes during a call, and the memory that must be kept
// for it. It is on the heap, so that C may write to it, and is reused, so that calls do not
// allocate. One goroutine may use it at a time.
type Frame struct {
	out  [3]uint64
	held [3]unsafe.Pointer
}

var frames = sync.Pool{New: func() any { return new(Frame) }}

// NewFrame returns a frame. The caller calls Done.
func NewFrame() *Frame { return frames.Get().(*Frame) }

// Done returns the frame to the pool. The frame must not be used afterwards.
func (fr *Frame) Done() {
	fr.held = [3]unsafe.Pointer{}
	frames.Put(fr)
}

// Call calls f. An argument may point to Go memory only if it comes from Out or Hold.
func (fr *Frame) Call(f Func, args ...uintptr) uintptr {
	var all Args
	copy(all[:], args)
	_, result := CallIn(nil, f, &all)
	return result
}

// Out clears result i, from 0 to 2, and returns its address as an argument.
func (fr *Frame) Out(i int) uintptr {
	fr.out[i] = 0
	return uintptr(unsafe.Pointer(&fr.out[i]))
}

// Result returns what C has written to result i. A C int is its lower half.
func (fr *Frame) Result(i int) uint64 { return fr.out[i] }

// Hold returns p as argument i, from 0 to 2. Storing p in the frame moves its memory to the
// heap, where it does not move, and keeps it until Done. p may also point to C memory.
func (fr *Frame) Hold(i int, p unsafe.Pointer) uintptr {
	fr.held[i] = p
	return uintptr(p)
}

// Pointer converts an address that C returned to a pointer. The memory must not be Go's.
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

// CString returns s with a zero byte appended. The caller keeps the slice alive while C reads
// it.
func CString(s string) []byte { return append([]byte(s), 0) }
