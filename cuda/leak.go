package cuda

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
)

// A leak is the report about an object that became garbage. It must not refer to the
// object, which would keep it alive.
type leak struct {
	what, where string // the object, and the caller's file and line
	log         *slog.Logger
}

// Watch reports p to the device's logger if p becomes garbage before the returned
// cleanup is stopped. The report contains what and the line that made p. Watch is for
// packages of this module that make objects on a device with other libraries.
func Watch[P any](p *P, d *Device, what string) runtime.Cleanup { return watch(p, d, what) }

func watch[P any](p *P, d *Device, what string) runtime.Cleanup {
	return runtime.AddCleanup(p, leak.report, leak{what, caller(), d.log})
}

// caller returns the first line of the call stack outside of packages cuda and nccl.
func caller() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		ours := strings.HasPrefix(f.Function, module+"cuda.") || strings.HasPrefix(f.Function, module+"nccl.")
		if !ours || !more {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
}

const module = "github.com/tutti-go/tutti/"

func (l leak) report() {
	l.log.Warn("cuda: a value was forgotten without Free or Close; what it holds stays allocated",
		"what", l.what, "made_at", l.where)
}
