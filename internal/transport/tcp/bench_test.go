package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// benchSizes are the body sizes that the benchmarks move both ways.
var benchSizes = []struct {
	name  string
	bytes int
	count int // exchanges per round
}{
	{"4B", 4, 2000},
	{"1KiB", 1 << 10, 2000},
	{"64KiB", 64 << 10, 400},
	{"1MiB", 1 << 20, 40},
	{"64MiB", 64 << 20, 2},
}

// A benchStep tells a child what to run next.
type benchStep struct {
	floor bool
	bytes int
	count int // zero: no further step
}

func (o benchStep) frame(peer int) *transport.Frame {
	b := make([]byte, 24)
	if o.floor {
		b[0] = 1
	}
	binary.LittleEndian.PutUint64(b[8:], uint64(o.bytes))
	binary.LittleEndian.PutUint64(b[16:], uint64(o.count))
	return &transport.Frame{Peer: peer, Body: b}
}

// A benchPeer is one end of a benchmark: a mesh, and a plain socket for comparison.
type benchPeer struct {
	m    *Mesh
	w    *wait.Waiter
	bare *conn
	out  []byte
	in   []byte
}

// run runs a step and returns how long each exchange took, on the mesh or, if o.floor is set, on the plain
// socket. The other rank must run the same step.
func (x *benchPeer) run(o benchStep) ([]time.Duration, error) {
	if len(x.out) < o.bytes {
		x.out, x.in = make([]byte, o.bytes), make([]byte, o.bytes)
	}
	peer := 1 - x.m.Rank()
	out := &transport.Frame{Peer: peer, Body: x.out[:o.bytes]}
	in := &transport.Frame{Peer: peer, Body: x.in[:o.bytes]}
	took := make([]time.Duration, o.count)
	for i := range took {
		begin := time.Now()
		var err error
		if o.floor {
			err = bareExchange(x.bare.fd, out.Body, in.Body)
		} else {
			err = x.m.Exchange(x.w, out, in)
		}
		if err != nil {
			return nil, err
		}
		took[i] = time.Since(begin)
	}
	return took, nil
}

// bareExchange is the lower bound: the same bytes on plain sockets, without headers, by polling only. It has
// no timeout, and returns an error when the connection ends.
func bareExchange(fd int, out, in []byte) error {
	for len(out)+len(in) > 0 {
		if len(out) > 0 {
			n, e := sysSend(fd, out)
			if err := failure(e); err != nil {
				return err
			}
			out = out[n:]
		}
		if len(in) > 0 {
			n, e := sysRecv(fd, in)
			if err := failure(e); err != nil {
				return err
			}
			if n == 0 && e == 0 {
				return errNoGoodbye
			}
			in = in[n:]
		}
	}
	return nil
}

// newExchanger connects the plain sockets of two ranks. Rank 0 listens and sends its address in a frame. The
// caller closes the socket, x.bare.
func newExchanger(m *Mesh) (*benchPeer, error) {
	x := &benchPeer{m: m, w: newWaiter()}
	where := &transport.Frame{Peer: 1 - m.Rank(), Body: make([]byte, 2)}
	var c net.Conn
	var err error
	if m.Rank() == 0 {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
		defer l.Close()
		binary.LittleEndian.PutUint16(where.Body, uint16(l.Addr().(*net.TCPAddr).Port))
		if err := m.Exchange(x.w, where, nil); err != nil {
			return nil, err
		}
		c, err = l.Accept()
	} else {
		if err := m.Exchange(x.w, nil, where); err != nil {
			return nil, err
		}
		c, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", binary.LittleEndian.Uint16(where.Body)))
	}
	if err != nil {
		return nil, err
	}
	x.bare, err = detachFD(c, time.Minute)
	return x, err
}

// serve runs the steps that rank 0 sends in frames, until an empty one or an error. It is rank 1's part, in
// another process or goroutine.
func (x *benchPeer) serve() error {
	defer x.bare.close()
	f := benchStep{}.frame(1 - x.m.Rank())
	for {
		x.w = newWaiter()
		if err := x.m.Exchange(x.w, nil, f); err != nil {
			return err
		}
		o := benchStep{
			f.Body[0] != 0, int(binary.LittleEndian.Uint64(f.Body[8:])), int(binary.LittleEndian.Uint64(f.Body[16:])),
		}
		if o.count == 0 {
			return nil
		}
		if _, err := x.run(o); err != nil {
			return err
		}
	}
}

// lead sends a step to the other end and takes part in it.
func (x *benchPeer) lead(o benchStep) ([]time.Duration, error) {
	x.w = newWaiter()
	if err := x.m.Exchange(x.w, o.frame(1-x.m.Rank()), nil); err != nil || o.count == 0 {
		return nil, err
	}
	return x.run(o)
}

func childBench(m *Mesh) error {
	x, err := newExchanger(m)
	if err != nil {
		return err
	}
	return x.serve()
}

// benchExchange measures mesh and plain sockets in turn, as rank 0, and reports the medians. An empty step
// ends the other rank's serve at the end.
func benchExchange(b *testing.B, m *Mesh) {
	x, err := newExchanger(m)
	if err != nil {
		b.Fatal(err)
	}
	defer x.bare.close()
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			var took [2][]time.Duration
			for _, floor := range []bool{false, true} {
				if _, err := x.lead(benchStep{floor, size.bytes, max(size.count/4, 2)}); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				for i, floor := range []bool{false, true} {
					list, err := x.lead(benchStep{floor, size.bytes, size.count})
					if err != nil {
						b.Fatal(err)
					}
					took[i] = append(took[i], list...)
				}
			}
			own, floor := median(took[0]), median(took[1])
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(own)/1e3, "p50-us")
			b.ReportMetric(float64(floor)/1e3, "floor-us")
			b.ReportMetric(float64(own)/float64(floor), "ratio")
		})
	}
	if _, err := x.lead(benchStep{}); err != nil {
		b.Fatal(err)
	}
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkProcesses exchanges bodies with another process, compared with plain sockets.
func BenchmarkProcesses(b *testing.B) {
	m, children := startChildren(b, 2, "bench")
	benchExchange(b, m)
	children[0].wait(b)
}

// BenchmarkThreads exchanges bodies between two goroutines.
func BenchmarkThreads(b *testing.B) {
	w := newWorld(b, 2, testOptions())
	end := make(chan error, 1)
	go func() { end <- childBench(w.meshes[1]) }()
	benchExchange(b, w.meshes[0])
	if err := <-end; err != nil && !errors.Is(err, errMeshClosed) {
		b.Error(err)
	}
}

// BenchmarkMessages passes messages between two goroutines, both ways at once. Only rank 0's goroutine writes
// took.
func BenchmarkMessages(b *testing.B) {
	world := newWorld(b, 2, testOptions())
	for _, size := range benchSizes[:4] {
		b.Run(size.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				world.run(b, func(m *Mesh, w *wait.Waiter) error {
					out := &transport.Message{Send: true, Peer: 1 - m.Rank(), Body: make([]byte, size.bytes)}
					in := &transport.Message{Peer: 1 - m.Rank(), Body: make([]byte, size.bytes)}
					for range size.count {
						begin := time.Now()
						m.Post(in)
						m.Post(out)
						if err := errors.Join(m.Finish(w, in), m.Finish(w, out)); err != nil {
							return err
						}
						if m.Rank() == 0 {
							took = append(took, time.Since(begin))
						}
					}
					return nil
				})
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(median(took))/1e3, "p50-us")
		})
	}
}
