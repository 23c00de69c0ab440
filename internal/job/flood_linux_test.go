package job

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// floodRank works during two floods, each of which ends by a line to rank 0. In the first flood the
// runtime allocates what it needs. After the second the resources must be those after the first.
func floodRank(ctx context.Context, e engine.Engine) error {
	stop := make(chan struct{})
	if e.Rank() == 0 {
		go func() {
			in := bufio.NewReader(os.Stdin)
			for range 2 {
				_, _ = in.ReadString('\n')
				stop <- struct{}{}
			}
		}()
	}
	seq := uint64(0)
	// round runs a small and a large operation with known results. The first element counts the
	// ranks that want to stop.
	x := make([]float32, 50_000)
	round := func(want float32) (bool, error) {
		for _, n := range []int{5, len(x)} {
			for i := range x[:n] {
				x[i] = float32(e.Rank() + i%9)
			}
			x[0] = want
			m := engine.Mem{Ptr: unsafe.Pointer(&x[0]), N: n, Type: kernel.Float32}
			seq++
			if err := e.Run(ctx, seq, []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Sum, Dst: m, Src: m}}); err != nil {
				return false, err
			}
			size := e.Size()
			for i, got := range x[1:n] {
				if want := float32(size*(size-1)/2 + size*((i+1)%9)); got != want {
					return false, fmt.Errorf("element %d of %d is %v, want %v", i+1, n, got, want)
				}
			}
		}
		return x[0] > 0, nil
	}
	for range 100 {
		if _, err := round(0); err != nil {
			return err
		}
	}
	first, err := linked(e.Size())
	if err != nil {
		return err
	}
	endure := func(before usage, slack int) (usage, error) {
		fmt.Println("ready")
		for i, over := 0, false; !over; i++ {
			want := float32(0)
			select {
			case <-stop:
				want = 1
			default:
			}
			if over, err = round(want); err != nil {
				return before, err
			}
			// A new group connects during the flood.
			if i%50 == 0 {
				if err := renew(ctx, e, seq); err != nil {
					return before, err
				}
			}
		}
		// The last connections of the flood are about to end.
		after, err := settle(before, slack)
		fmt.Printf("%d operations; before %+v, after %+v\n", seq, before, after)
		return after, err
	}
	second, err := endure(first, 64<<20)
	if err != nil {
		return err
	}
	// No rank continues while another rank waits for them to end.
	if _, err := round(0); err != nil {
		return err
	}
	if _, err = endure(second, 512<<10); err != nil {
		return err
	}
	_, err = round(0)
	return err
}

// renew makes a group of all ranks, uses it and closes it.
func renew(ctx context.Context, e engine.Engine, seq uint64) error {
	all := make([]int, e.Size())
	for r := range all {
		all[r] = r
	}
	sub, err := e.Sub(ctx, seq, all)
	if err != nil {
		return err
	}
	return errors.Join(sub.Run(ctx, 1, []engine.Call{{Verb: engine.Barrier}}), sub.Close())
}

// TestFlood floods the data listeners and rank 0's control listener of a running job with connections that
// are not ranks. The job must complete its operations and end without an error.
func TestFlood(t *testing.T) {
	for name, env := range map[string][]string{
		"network":       {"TUTTI_TEST_NETWORK=1"},
		"shared memory": {"TUTTI_TEST_NETWORK="},
		"TLS":           append(encrypted(t), "TUTTI_TEST_NETWORK=1"),
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, 3, "besieged", env...)
			var addrs []string
			for i := range 2 {
				for _, out := range w.out {
					out.Await(t, "ready", i+1)
				}
				for _, cmd := range w.cmds {
					if i == 0 {
						addrs = append(addrs, listening(t, cmd.Process.Pid)...)
					}
				}
				if len(addrs) != 4 {
					t.Fatalf("the ranks listen at %v, want one address each, and one for control", addrs)
				}
				idle := append(flood(t, addrs), floodMemory(t, w, name == "shared memory")...)
				if _, err := io.WriteString(w.in[0], "enough\n"); err != nil {
					t.Fatal(err)
				}
				for _, c := range idle {
					c.Close()
				}
			}
			w.wait(t)
			for _, out := range w.out {
				for line := range strings.Lines(out.String()) {
					if strings.Contains(line, "operations; before") {
						t.Log(line)
					}
				}
			}
		})
	}
}

// flood opens connections of all kinds to all addresses, and returns those that are still open, which the
// caller closes. A goroutine reads or slowly writes each of the others; flood waits for these goroutines. mu
// guards idle.
func flood(t *testing.T, addrs []string) []net.Conn {
	t.Helper()
	crowd, rounds := 1000, 100
	if testing.Short() {
		crowd, rounds = 300, 20
	}
	var mu sync.Mutex
	var idle []net.Conn
	stay := func(c net.Conn) {
		mu.Lock()
		idle = append(idle, c)
		mu.Unlock()
	}
	attacks := 0
	var strangers sync.WaitGroup
	for i, addr := range addrs {
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		for range rounds {
			for _, words := range [][]byte{
				randomBytes(rnd, 1+rnd.IntN(5000)),
				[]byte("tuttitcp\x01\x00"), // the beginning of a hello
				append([]byte("tuttitcp\x01\x00"), randomBytes(rnd, 86)...),
				binary.BigEndian.AppendUint32(nil, 0xffffffff),                               // a huge frame
				append(binary.BigEndian.AppendUint32(nil, 60_000), randomBytes(rnd, 100)...), // a truncated frame
				append(binary.BigEndian.AppendUint32(nil, 2), "{}"...),
				[]byte("GET / HTTP/1.1\r\nHost: here\r\n\r\n"),
				{0x16, 0x03, 0x01, 0xff, 0xff, 0x01}, // the beginning of a TLS session
				nil,
			} {
				c := dialAddr(t, addr)
				_, _ = c.Write(words) // the connection may be closed already
				attacks++
				if rnd.IntN(4) == 0 {
					stay(c)
					continue
				}
				strangers.Go(func() {
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, c)
					c.Close()
				})
			}
		}
		// A slow sender sends one byte at a time until the connection or the test ends.
		strangers.Go(func() {
			c := dialAddr(t, addr)
			defer c.Close()
			for range 200 {
				if _, err := c.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
		for range crowd / len(addrs) {
			stay(dialAddr(t, addr))
		}
	}
	strangers.Wait()
	t.Logf("%d strangers, %d of them idle", attacks+crowd+len(addrs), len(idle))
	return idle
}

// floodMemory opens connections to the listeners that pass memory, if there are any, and returns those that
// are still open, which the caller closes. A listener exists exactly if passed is set.
func floodMemory(t *testing.T, w *world, passed bool) (idle []net.Conn) {
	t.Helper()
	// More than the pending connections that a listener keeps.
	const crowd = 400
	rnd := rand.New(rand.NewPCG(2, 2))
	for r, cmd := range w.cmds {
		at, _ := memorySockets(t, cmd.Process.Pid)
		if (len(at) == 1) != passed || len(at) > 1 {
			t.Fatalf("rank %d passes memory at %q", r, at)
		}
		for i := range len(at) * crowd {
			c, err := net.Dial("unixpacket", at[0])
			if err != nil {
				t.Error(err)
				continue
			}
			idle = append(idle, c)
			if i%2 == 0 {
				_, _ = c.Write(randomBytes(rnd, 1+rnd.IntN(200))) // the connection may be closed already
			}
		}
	}
	return idle
}

func randomBytes(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

func dialAddr(t *testing.T, addr string) net.Conn {
	c, err := net.DialTimeout("tcp", addr, deadline)
	if err != nil {
		t.Error(err)
		a, b := net.Pipe()
		b.Close()
		return a
	}
	_ = c.SetDeadline(time.Now().Add(deadline))
	return c
}
