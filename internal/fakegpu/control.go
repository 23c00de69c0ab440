package fakegpu

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
)

// Things that the fake GPU counts; see Control.Live.
const (
	Memory   = iota // device allocations
	Host            // pinned and registered host memory
	Streams         //
	Events          //
	Contexts        // primary contexts that are retained
	Pools           //
	Comms           //
	Ops             // created reduction operators
	Handles         // registered buffers and windows
	kinds
)

// Hang is the code of a fault that makes a call hang until Release.
const Hang = -1

// Kernel is the name of a fault that happens on the stream, in the collective
// itself, and not in a call.
const Kernel = "fake_kernel"

// A Control tells a loaded stand-in what to do, and asks it what was done. It
// may be shared between goroutines; faults and counters belong to the process.
type Control struct {
	lib *dl.Library
}

// NewControl returns the control of the fake GPU at a path that Build returned.
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

// Fail makes the nth call of a function from now on (1 is the next) return code
// and do nothing, or hang.
func (c *Control) Fail(function string, nth, code int) {
	c.call("fake_fail", function, uintptr(nth), uintptr(code))
}

// Fired is how many faults have happened.
func (c *Control) Fired() int { return int(c.call("fake_fired", "")) }

// Release lets calls that hang go on.
func (c *Control) Release() { c.call("fake_release", "") }

// Reset forgets faults that have not happened and the lag, and releases.
func (c *Control) Reset() { c.call("fake_reset", "") }

// Calls is how often a function was called.
func (c *Control) Calls(function string) int { return int(c.call("fake_calls", function)) }

// Live is how many things of a kind there are.
func (c *Control) Live(kind int) int { return int(c.call("fake_live", "", uintptr(kind))) }

// Left reports whether there is more of something than before. What there was may
// be less by now: others may have left something that ends by itself.
func (c *Control) Left(before [kinds]int) bool {
	for i, n := range before {
		if c.Live(i) > n {
			return true
		}
	}
	return false
}

// AllLive is the numbers of all kinds of things, to be compared later.
func (c *Control) AllLive() [kinds]int {
	var all [kinds]int
	for i := range all {
		all[i] = c.Live(i)
	}
	return all
}
