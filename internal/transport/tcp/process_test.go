package tcp

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
)

func childRing(m *Mesh) error { return ring(m, newWaiter(), someSizes) }

func TestProcesses(t *testing.T) {
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			m, children := startChildren(t, n, "ring")
			if err := ring(m, newWaiter(), someSizes); err != nil {
				t.Error(err)
			}
			for _, c := range children {
				c.wait(t)
			}
		})
	}
}

// childHold sends half of a large frame, because the receiver does not read the rest. A goroutine reports
// that by a line of output. The test kills the process.
func childHold(m *Mesh) error {
	w := newWaiter()
	small := transport.Frame{Peer: 0, Body: make([]byte, 10)}
	if err := m.Exchange(w, &small, nil); err != nil {
		return err
	}
	go func() {
		for {
			if l := m.slots[laneFrames][0].link.Load(); l != nil && unsentBytes(l.fd) > 1<<16 {
				fmt.Println("in the middle")
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	large := transport.Frame{Peer: 0, Body: make([]byte, 256<<20)}
	err := m.Exchange(w, &large, nil)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return err
}
