package tcp

import (
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"testing"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// someSizes lie around the sizes of headers, small bodies and single system calls.
var someSizes = []int{
	0, 1, 3, 4, 47, 48, 79, 80, 81, 1000, smallBody - 1, smallBody, smallBody + 1, 4096, 65_535, 65_536, 100_001,
	maxSyscallBytes - headerBytes, maxSyscallBytes - 1, maxSyscallBytes, maxSyscallBytes + 1, 3<<20 + 5, 8 << 20, 0, 1,
}

// kinds are the Options that tests run with.
func kinds(t *testing.T) map[string]Options {
	six := testOptions()
	six.Listen = "[::1]:0"
	all := map[string]Options{"plain": testOptions(), "tls": withTLS(t, testOptions()), "ipv6": six}
	if l, err := net.Listen("tcp", six.Listen); err != nil {
		delete(all, "ipv6")
	} else {
		_ = l.Close()
	}
	return all
}

func TestExchangeSizes(t *testing.T) {
	for name, opts := range kinds(t) {
		for n := 2; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s, %d ranks", name, n), func(t *testing.T) {
				w := newWorld(t, n, opts)
				w.run(t, func(m *Mesh, w *wait.Waiter) error { return ring(m, w, someSizes) })
			})
		}
	}
}

// TestExchangeOneWay sends without receiving and the reverse, more than the socket buffers hold.
func TestExchangeOneWay(t *testing.T) {
	for name, opts := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			world := newWorld(t, 2, opts)
			world.run(t, func(m *Mesh, w *wait.Waiter) error {
				for step := range 50 {
					f := &transport.Frame{Peer: 1 - m.Rank(), Body: make([]byte, 1<<20+step)}
					if m.Rank() == step%2 {
						fill(f.Body, m.Rank(), f.Peer, step)
						if err := m.Exchange(w, f, nil); err != nil {
							return err
						}
						continue
					}
					if err := m.Exchange(w, nil, f); err != nil {
						return err
					}
					if err := checkBody(f.Body, f.Peer, m.Rank(), step); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// TestExchangeLength receives with an expected length that is larger, smaller or zero. The receiver gets a
// LengthError and the frame's head; the sender succeeds.
func TestExchangeLength(t *testing.T) {
	for _, c := range []struct{ sent, want int }{{4, 5}, {5, 4}, {0, 1}, {1, 0}, {4, 100_000}, {100_000, 4}, {100_000, 100_001}} {
		t.Run(fmt.Sprintf("%d for %d", c.sent, c.want), func(t *testing.T) {
			world := newWorld(t, 2, testOptions())
			world.run(t, func(m *Mesh, w *wait.Waiter) error {
				if m.Rank() == 0 {
					f := &transport.Frame{Peer: 1, Body: make([]byte, c.sent)}
					f.Head[7] = 42
					return m.Exchange(w, f, nil)
				}
				f := &transport.Frame{Peer: 0, Body: make([]byte, c.want)}
				err := m.Exchange(w, nil, f)
				var wrong *transport.LengthError
				if !errors.As(err, &wrong) || *wrong != (transport.LengthError{Peer: 0, Want: c.want, Sent: c.sent}) {
					return fmt.Errorf("got %v", err)
				}
				if f.Head[7] != 42 {
					return errors.New("no head")
				}
				return nil
			})
		})
	}
}

func TestExchangeWrongPeer(t *testing.T) {
	world := newWorld(t, 2, testOptions())
	for _, peer := range []int{-1, 0, 2} {
		if err := world.meshes[0].Exchange(newWaiter(), &transport.Frame{Peer: peer}, nil); err == nil {
			t.Errorf("rank 0 could exchange with rank %d", peer)
		}
	}
}

// TestNoAllocation counts the allocations of frames and messages after a warm-up. The runtime
// allocates for threads that it starts, so the round with the fewest allocations counts.
func TestNoAllocation(t *testing.T) {
	const runs, warm, rounds = 250, 4, 4
	one := func(name string, f func(m *Mesh, w *wait.Waiter) func() error) {
		t.Run(name, func(t *testing.T) {
			var counts []uint64 // allocations after each round
			world := newWorld(t, 2, testOptions())
			world.run(t, func(m *Mesh, w *wait.Waiter) error {
				g := f(m, w)
				var stats runtime.MemStats
				for i := range (warm + rounds) * runs {
					if err := g(); err != nil {
						return err
					}
					if m.Rank() == 0 && (i+1)%runs == 0 {
						runtime.ReadMemStats(&stats)
						counts = append(counts, stats.Mallocs)
					}
				}
				return nil
			})
			fewest := uint64(math.MaxUint64)
			for i := warm; i < len(counts); i++ {
				fewest = min(fewest, counts[i]-counts[i-1])
			}
			// Fewer than one per ten runs are the runtime's.
			if fewest > runs/10 {
				t.Errorf("%d allocations in %d runs of 2 ranks", fewest, runs)
			}
		})
	}
	for _, size := range []int{4, 100_000} {
		one(fmt.Sprintf("frames of %d", size), func(m *Mesh, w *wait.Waiter) func() error {
			out := &transport.Frame{Peer: 1 - m.Rank(), Body: make([]byte, size)}
			in := &transport.Frame{Peer: 1 - m.Rank(), Body: make([]byte, size)}
			return func() error { return m.Exchange(w, out, in) }
		})
		for _, any := range []bool{false, true} {
			one(fmt.Sprintf("messages of %d, from any rank: %v", size, any), func(m *Mesh, w *wait.Waiter) func() error {
				out := &transport.Message{Send: true, Peer: 1 - m.Rank(), Body: make([]byte, size)}
				in := &transport.Message{Peer: 1 - m.Rank(), Body: make([]byte, size)}
				if any {
					in.Peer = transport.AnyRank
				}
				return func() error {
					m.Post(out)
					m.Post(in)
					return errors.Join(m.Finish(w, in), m.Finish(w, out))
				}
			})
		}
	}
}
