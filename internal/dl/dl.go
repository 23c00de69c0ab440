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
		handle, err := locked(func() (uintptr, error) { return open(path) })
		if err == nil {
			return &Library{path: path, handle: handle}, nil
		}
		e.Tried = append(e.Tried, Attempt{Path: path, Reason: reason(path, err)})
	}
	return nil, e
}

// locked keeps the goroutine on its thread, to which the loader's last error
// belongs.
func locked(f func() (uintptr, error)) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return f()
}

// reason leaves out the path, with which the loader begins its messages.
func reason(path string, err error) string {
	return strings.TrimPrefix(err.Error(), path+": ")
}

// Func looks a function up; it is 0 if the library does not have it.
func (l *Library) Func(name string) Func {
	addr, err := locked(func() (uintptr, error) { return symbol(l.handle, name) })
	if err != nil {
		return 0
	}
	return Func(addr)
}

// A Func is the address of a C function that takes and returns integers and
// pointers only. Calls return the first result register; of a C int that is the
// lower half.
type Func uintptr

// Args are the arguments of a call, in order; those that the function does not
// have are not looked at.
type Args [12]uintptr

// A Call is a function with its arguments. The assembly knows how long it is, and
// where its fields are.
type Call struct {
	Fn   Func
	Args Args
}

// A Bracket is two calls that go around others: Before(Arg), which must return
// zero, and After(address of a result that nobody needs), on the same thread. The
// assembly knows where its fields are.
type Bracket struct {
	Before Func
	Arg    uintptr
	After  Func
}

// A block is calls, and the two around them, which are made one after the other,
// without going back to Go in between. The assembly knows where its fields are.
type block struct {
	in      *Bracket       // nil: only the calls themselves
	call    *Call          // the next one
	left    uintptr        // how many follow, with that one
	stop    *atomic.Uint32 // between two of them: if it is not zero, none follows
	before  uintptr        // what the first returned
	result  uintptr        // of the last one that was made
	ignored uintptr        // what the last may write to
}

// CallIn calls f within a bracket; nil is none. The first result is Before's: if
// it is not zero, nothing else was called. The arguments may be on the stack,
// because that does not move while C runs, but none of them may point there, or to
// other memory of Go's: see Frame.
func CallIn(in *Bracket, f Func, args *Args) (before, result uintptr) {
	c := Call{f, *args}
	b := block{in: in, call: &c, left: 1}
	b.run()
	return b.before, b.result
}

// CallAll makes calls one after the other within a bracket, until one returns a C int
// that is not zero, or stop is not zero any more when one has returned. Made is how many
// were made, and result is the last one's; all else is as in CallIn. It is for calls of a
// few microseconds, which throw out of the caches what Go would need between two of them.
func CallAll(in *Bracket, list []Call, stop *atomic.Uint32) (before, result uintptr, made int) {
	if len(list) == 0 {
		return 0, 0, 0
	}
	b := block{in: in, call: &list[0], left: uintptr(len(list)), stop: stop}
	b.run()
	return b.before, b.result, len(list) - int(b.left)
}

// A Frame is the small results of a call, and what has to be kept during it. It
// lives on the heap, so that C may write to it, and is reused, so that calls do not
// allocate. It may not be shared while it is in use.
type Frame struct {
	out  [3]uint64
	held [3]unsafe.Pointer
}

var frames = sync.Pool{New: func() any { return new(Frame) }}

// NewFrame returns a frame; its Done gives it back.
func NewFrame() *Frame { return frames.Get().(*Frame) }

// Done gives the frame back. Nothing of it may be used afterwards.
func (fr *Frame) Done() {
	fr.held = [3]unsafe.Pointer{}
	frames.Put(fr)
}

// Call calls f. Of Go's memory, only this frame's own may be among the
// arguments: see Out and Hold.
func (fr *Frame) Call(f Func, args ...uintptr) uintptr {
	var all Args
	copy(all[:], args)
	_, result := CallIn(nil, f, &all)
	return result
}

// Out clears the i-th result, of three, and returns its address, as an argument.
func (fr *Frame) Out(i int) uintptr {
	fr.out[i] = 0
	return uintptr(unsafe.Pointer(&fr.out[i]))
}

// Result is what C wrote to the i-th result. Of a C int it is the lower half.
func (fr *Frame) Result(i int) uint64 { return fr.out[i] }

// Hold returns p as an argument. Storing it here moves what it points to onto
// the heap, where it does not move, and keeps it there until Done. Pointers to C's
// memory may be given too. There is room for three.
func (fr *Frame) Hold(i int, p unsafe.Pointer) uintptr {
	fr.held[i] = p
	return uintptr(p)
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
