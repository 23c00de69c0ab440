package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport/tcp"
)

// A corruptingProxy forwards TCP connections. When armed, it flips one bit in the
// middle of a large transfer to one address.
type corruptingProxy struct {
	target  string // address of the connections to corrupt
	armed   atomic.Bool
	flipped atomic.Int32 // number of bits that were flipped
}

// listen returns an address whose connections are forwarded to another. One goroutine accepts, and two
// forward each connection. All of them end with the test.
func (n *corruptingProxy) listen(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			wg.Go(func() { n.forward(out, in, to == n.target) })
			wg.Go(func() { n.forward(in, out, to != n.target) })
		}
	})
	return l.Addr().String()
}

// forward copies one direction of a connection until it ends. If corrupt is set and the proxy is armed, it
// flips one bit of the test's data. Only one of the goroutines in forward flips a bit, because it disarms the
// proxy.
func (n *corruptingProxy) forward(to, from net.Conn, corrupt bool) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		k, err := from.Read(buf)
		if err != nil {
			return
		}
		if corrupt && inData(buf[:k], k/2) && n.armed.CompareAndSwap(true, false) {
			buf[k/2] ^= 4
			n.flipped.Add(1)
		}
		if _, err := to.Write(buf[:k]); err != nil {
			_, _ = io.Copy(io.Discard, from)
			return
		}
	}
}

// inData reports whether byte at of b is in the test's data, which is all zeros,
// and not in a header. The boundaries of reads are arbitrary.
func inData(b []byte, at int) bool {
	const around = 1 << 10
	return at >= around && at+around <= len(b) && len(bytes.Trim(b[at-around:at+around], "\x00")) == 0
}

// TestCorruption flips a bit on its way to rank 1. Without checksums no rank
// detects it. With checksums all ranks report the sender, the receiver and the
// address.
func TestCorruption(t *testing.T) {
	for _, how := range []string{"collective", "message"} {
		for _, verify := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/verify=%v", how, verify), func(t *testing.T) { testCorruption(t, how, verify) })
		}
	}
}

// testCorruption is one case of TestCorruption: two ranks on goroutines connect through the proxy, rank 0
// arms it, and both make one collective or message. With checksums rank 1 fails with ErrCorrupt and rank 0 is
// told; without, rank 1 has a wrong bit and no error.
func testCorruption(t *testing.T, how string, verify bool) {
	var listeners []*tcp.Listener
	for range 2 {
		l, err := tcp.Listen(tcp.Options{Job: "test", Secret: []byte("secret"), Listen: "127.0.0.1:0", Verify: verify})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		listeners = append(listeners, l)
	}
	plain := func(l *tcp.Listener) string {
		at, _, _ := strings.Cut(l.Addrs()[0], "/") // the part behind the slash is for package tcp
		return at
	}
	n := &corruptingProxy{target: plain(listeners[1])}
	engines := make([]*Engine, 2)
	for r, l := range listeners {
		peers := [][]string{{n.listen(t, plain(listeners[0]))}, {n.listen(t, plain(listeners[1]))}}
		mesh, err := l.Mesh(tcp.MeshOptions{Group: tcp.Group{1}, Rank: r, Peers: peers})
		if err != nil {
			t.Fatal(err)
		}
		engines[r] = New(mesh, Options{OnFail: func(f *engine.Failure) {
			told := *f
			told.Told = true
			engines[1-r].Fail(&told)
		}})
		t.Cleanup(func() { _ = engines[r].Close() })
	}
	ctx := context.Background()
	var wg sync.WaitGroup
	got := make([][]byte, 2)
	errs := make([]error, 2)
	for r, e := range engines {
		wg.Go(func() {
			x := make([]byte, 1<<20)
			m := engine.Mem{Ptr: unsafe.Pointer(&x[0]), N: len(x), Type: kernel.Uint8}
			got[r] = x
			// The ranks connect before the proxy is armed.
			warm := m.Slice(0, 10)
			if errs[r] = e.Run(ctx, 1, []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Max, Dst: warm, Src: warm}}); errs[r] != nil {
				return
			}
			if r == 0 {
				n.armed.Store(true)
			}
			if how == "collective" {
				errs[r] = e.Run(ctx, 2, []engine.Call{{Verb: engine.Broadcast, Dst: m, Src: m}})
			} else {
				msg := engine.Message{Send: r == 0, Peer: 1 - r, Tag: 1, Mem: m}
				e.Post(&msg)
				errs[r] = e.Finish(ctx, &msg)
			}
		})
	}
	wg.Wait()
	if n.flipped.Load() != 1 {
		t.Fatalf("%d bits were changed: %v", n.flipped.Load(), errs)
	}
	if !verify {
		if errs[0] != nil || errs[1] != nil || strings.Count(string(got[1]), "\x04") != 1 {
			t.Errorf("%v", errs)
		}
		return
	}
	f := engines[1].Failure()
	if !errors.Is(errs[1], engine.ErrCorrupt) || f == nil || f.Rank != 1 ||
		!strings.Contains(f.Reason(), "what rank 0 sent to rank 1, from 127.0.0.1:") {
		t.Errorf("rank 1: %v", errs[1])
	}
	// Rank 0 may have had nothing to wait for.
	if f := engines[0].Failure(); f == nil || !errors.Is(f, engine.ErrCorrupt) {
		t.Errorf("rank 0: %v", f)
	}
}
