package cuda

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
)

// A leak is what is reported of a value that was forgotten. It holds nothing
// that would keep the value alive.
type leak struct {
	what, where string
	log         *slog.Logger
}

// Watch reports p to the device's logger, by what it is and where it was made,
// if it becomes garbage before the returned cleanup is stopped. It is for packages
// of this module that make things on a device by other libraries.
func Watch[P any](p *P, d *Device, what string) runtime.Cleanup { return watch(p, d, what) }

func watch[P any](p *P, d *Device, what string) runtime.Cleanup {
	return runtime.AddCleanup(p, leak.report, leak{what, caller(), d.log})
}

// caller is the line outside of these packages that called into them.
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
