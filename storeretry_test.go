package tutti_test

import (
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/tutti-go/tutti"
)

// TestStoreRetry puts a forwarder between a rank and the store. The goroutine that accepts closes the first
// connection during its request, as happens to a process that was suspended while it connected. The client
// must send the request again, and Join and Grow succeed.
func TestStoreRetry(t *testing.T) {
	f := newProcessJob(t)
	way, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()
	var cut, passed atomic.Int32
	go func() {
		for {
			c, err := way.Accept()
			if err != nil {
				return
			}
			if cut.CompareAndSwap(0, 1) {
				c.Close()
				continue
			}
			s, err := net.Dial("tcp", f.server.Addr().String())
			if err != nil {
				t.Error(err)
				c.Close()
				continue
			}
			passed.Add(1)
			for from, to := range map[net.Conn]net.Conn{c: s, s: c} {
				go func() {
					_, _ = io.Copy(to, from)
					to.Close()
				}()
			}
		}
	}()
	t.Setenv("TUTTI_STORE", way.Addr().String())
	t.Setenv("TUTTI_SECRET", "a secret")
	t.Setenv("TUTTI_RANK", "0")
	t.Setenv("TUTTI_SIZE", "1")
	c, err := tutti.Join(t.Context(), tutti.Config{ShrinkTimeout: deadline})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if next, err := c.Grow(t.Context(), 0); err != nil || next != c {
		t.Error(next, err)
	}
	if cut.Load() != 1 || passed.Load() == 0 {
		t.Errorf("%d connections were cut, %d passed on", cut.Load(), passed.Load())
	}
}
