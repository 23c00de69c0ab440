package fakegpu

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
)

// The kinds of objects that the fake GPU counts; see Control.Live. csrc/fake.h numbers them in the same order.
const (
	Memory   = iota // device allocations
	Host            // pinned and registered host memory
	Streams         //
	Events          //
	Contexts        // retained primary contexts
	Pools           //
	Comms           //
	Ops             // reduction operators of ncclRedOpCreatePreMulSum
	Handles         // registered buffers and windows
	kinds
)

// Hang is the code of a fault that makes a call hang until Release: HANG in csrc/control.c.
const Hang = -1

// Kernel is the function name for a fault in the kernel of a collective, on the stream, and
// not in a call.
const Kernel = "fake_kernel"

// A Control injects faults into a loaded fake libcuda and reads its counters. It may be shared
// between goroutines. Faults and counters belong to the process.
type Control struct {
	lib *dl.Library
}

// NewControl returns the control of the fake libcuda at a path from Build.
func NewControl(cuda string) (*Control, error) {
	lib, err := dl.Open("the fake GPU", "", cuda)
	if err != nil {
		return nil, err
	}
	return &Control{lib}, nil
}

func (c *Control) call(name string, text string, args ...uintptr) int64 {
	fr := dl.NewFrame()
	defer fr.Done()
	if text != "" {
		bytes := dl.CString(text)
		args = append([]uintptr{fr.Hold(0, unsafe.Pointer(&bytes[0]))}, args...)
	}
	return int64(fr.Call(c.lib.Func(name), args...))
}

// Fail makes the nth next call of a function, from 1, return code without doing anything. With
// the code Hang it hangs instead.
func (c *Control) Fail(function string, nth, code int) {
	c.call("fake_fail", function, uintptr(nth), uintptr(code))
}

// Fired returns the number of faults that have occurred.
func (c *Control) Fired() int { return int(c.call("fake_fired", "")) }

// Release lets hanging calls continue.
func (c *Control) Release() { c.call("fake_release", "") }

// Reset removes pending faults and the lag, and calls Release.
func (c *Control) Reset() { c.call("fake_reset", "") }

// Calls returns the number of calls of a function.
func (c *Control) Calls(function string) int { return int(c.call("fake_calls", function)) }

// Live returns the number of live objects of a kind.
func (c *Control) Live(kind int) int { return int(c.call("fake_live", "", uintptr(kind))) }

// Left reports whether there are more objects of some kind than before. There may be fewer: an
// earlier test's object may have ended meanwhile.
func (c *Control) Left(before [kinds]int) bool {
	for i, n := range before {
		if c.Live(i) > n {
			return true
		}
	}
	return false
}

// AllLive returns the numbers of live objects by kind, for Left.
func (c *Control) AllLive() [kinds]int {
	var all [kinds]int
	for i := range all {
		all[i] = c.Live(i)
	}
	return all
}
